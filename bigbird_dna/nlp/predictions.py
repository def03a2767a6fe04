"""Files of predictions: a JSON object a line, one for each record that is to be judged."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from bigbird_dna.errors import DataError
from bigbird_dna.nlp.records import Record, checked, read_objects

P = TypeVar("P", bound=Record)


def read_predictions(path: Path, kind: type[P], said: str, records: Mapping[str, Record]) -> dict[str, P]:
    """The predictions of a file by their records' ids, in the order of `records`.

    Parameters
    ----------
    said
        The key of what is predicted, which no line may lack.
    records
        Those that are to be judged, by their ids.

    Raises
    ------
    DataError
        A line is not such a prediction, or the second one of its record; a record has no prediction, or a
        prediction no record.
    """
    found: dict[str, P] = {}
    for number, values in read_objects(path):
        if values.get("id") in (None, "") or values.get(said) is None:
            raise DataError(f"{path}: line {number}: has no id or no {said}")
        one = checked(values, kind, number, path)
        if one.id in found:
            raise DataError(f"{path}: line {number}: record {one.id!r} is predicted twice")
        found[one.id] = one
    for name in records:
        if name not in found:
            raise DataError(f"{path}: has no prediction for record {name!r}")
    for name in found:
        if name not in records:
            raise DataError(f"{path}: predicts record {name!r}, which is not among the records")
    return {name: found[name] for name in records}
