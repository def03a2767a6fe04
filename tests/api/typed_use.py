"""What a type checker must make of the public names: `test_types` runs mypy over it, nothing runs it."""

from typing import assert_type

import numpy as np
import numpy.typing as npt
import pandas as pd

import bigbird_dna

Floats = npt.NDArray[np.float32]

model = bigbird_dna.load("directory")
assert_type(model, bigbird_dna.Model)
model.predict("ACGT", pad=True)
assert_type(model.embed(["ACGT"]), Floats)
assert_type(model.variant_effects("x.vcf", "genome.fa", max_n=0.5), pd.DataFrame)
assert_type(model.predict_regions("x.bed", "genome.fa"), pd.DataFrame)
texts: "pd.Series[str]" = pd.Series(["ACGT"])
if isinstance(model, bigbird_dna.PromoterModel):
    assert_type(model.predict("ACGT"), Floats)
    assert_type(model.predict(["ACGT"], max_n=1), Floats)
    assert_type(model.predict(texts), "pd.Series[float]")
    assert_type(model.embed(texts), pd.DataFrame)
    model.predict(3)  # type: ignore[call-overload]
if isinstance(model, bigbird_dna.ChromatinModel):
    assert_type(model.predict(texts), pd.DataFrame)
    assert_type(model.predict("ACGT", center_fraction=0.5), Floats)
    model.predict_regions(3, "genome.fa")  # type: ignore[arg-type]
bigbird_dna.load(3)  # type: ignore[arg-type]
nothing = bigbird_dna.nothing  # type: ignore[attr-defined]
assert_type(bigbird_dna.__version__, str)
