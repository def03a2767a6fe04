"""Token stores: the encoded documents of one split of a genome (paper App. F.1).

A store is a directory:

* `tokens.bin`: the token ids of all sentences, without special tokens, little-endian uint16 (uint32 for
  vocabularies above 65,536);
* `sentences.npy`: int64 (S + 1,), sentence s is `tokens[sentences[s]:sentences[s + 1]]`;
* `documents.npy`: int64 (D + 1,), document d has the sentences `documents[d]` to `documents[d + 1] - 1`;
* `store.json`: sources, settings, counts, and the SHA-256 of the other files.

Sentences of one document are adjacent on the genome. A sentence with too many N is skipped and counted, and a
document is divided there, so that consecutive sentences are always adjacent. All arrays are memory-mapped.
"""

from array import array
from collections.abc import Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.console import ProgressBar
from bigbird_dna.disk.atomic import checksum, read_object, reading, write_json
from bigbird_dna.disk.directories import atomic_directory
from bigbird_dna.errors import DataError, shortened
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, fraction_n, reverse_complement
from bigbird_dna.genome.splits import name_parts
from bigbird_dna.tokens.corpus import MAX_N, DocumentPlan, iter_documents
from bigbird_dna.tokens.interface import Tokenizer, require_dna

FORMAT = 3
DESCRIPTION = "store.json"
TOKENS, SENTENCES, DOCUMENTS = "tokens.bin", "sentences.npy", "documents.npy"
_CHUNK = 64  # documents that are encoded together


def build_store(
    directory: Path,
    reference: Reference,
    segments: Sequence[Interval],
    tokenizer: Tokenizer,
    plan: DocumentPlan,
    *,
    split: str = "train",
    seed: int = 0,
    max_n: float = MAX_N,
    threads: int = 1,
) -> dict[str, Any]:
    """Draw the documents of a split's contigs or segments, encode them, and write a store atomically.

    The bytes depend on the sequence, the tokenizer, the plan, `max_n` and the seed, but not on the number of
    threads. Sentences are encoded one by one; those with a larger fraction of N than `max_n` are skipped.
    Returns the content of `store.json`. Memory has 8 bytes per sentence. `DataError` if no sentence is left.
    """
    require_dna(tokenizer)
    dtype, code = "uint16", "u2"
    if tokenizer.vocabulary > 1 << 16:
        dtype, code = "uint32", "u4"

    # Documents of the first pass, or with both strands of the first pass of each.
    first_passes = 2 if plan.strands == "both" else 1
    sentences, documents = array("q", [0]), array("q", [0])
    first_documents = bases = skipped_sentences = skipped_bases = 0
    stream = iter_documents(segments, plan, seed)
    total = plan.passes * sum(map(len, segments))
    with (
        atomic_directory(Path(directory)) as temporary,
        ProgressBar(f"tokenizing {split}", total, "bp") as bar,
    ):
        with (temporary / TOKENS).open("wb") as file:
            while chunk := list(islice(stream, _CHUNK)):
                texts = []
                for document in chunk:
                    sequence = reference.fetch(document.interval)
                    if document.reverse:
                        sequence = reverse_complement(sequence)

                    run = 0  # adjacent sentences
                    for start, end in pairwise((0, *document.ends)):
                        sentence = sequence[start:end]
                        if fraction_n(sentence) <= max_n:
                            texts.append(sentence)
                            run += 1
                            continue

                        skipped_sentences += 1
                        skipped_bases += len(sentence)
                        if run:
                            documents.append(documents[-1] + run)
                            run = 0

                    if run:
                        documents.append(documents[-1] + run)

                    if document.number < first_passes:
                        first_documents = len(documents) - 1

                    bar.advance(len(sequence))

                rows = tokenizer.encode_batch(texts, threads)
                if rows:
                    file.write(np.concatenate(rows).astype(f"<{code}").tobytes())

                for row in rows:
                    sentences.append(sentences[-1] + len(row))

                bases += sum(map(len, texts))

        np.save(temporary / SENTENCES, np.array(sentences, "<i8"))
        np.save(temporary / DOCUMENTS, np.array(documents, "<i8"))
        contigs = list(dict.fromkeys(segment.contig for segment in segments))
        if contigs and len(sentences) == 1:
            raise DataError(
                f"{reference.path}: no sentence of {shortened(', '.join(contigs[:4]), 200)} has at most "
                f"{max_n:.0%} N, so there is nothing to tokenize"
            )

        info = {
            "format": FORMAT,
            "split": split,
            "vocabulary": tokenizer.vocabulary,
            "tokenizer_sha256": tokenizer.sha256,
            "reference_sha256": checksum(reference.path),
            "dtype": dtype,
            "documents": len(documents) - 1,
            "first_documents": first_documents,
            "sentences": len(sentences) - 1,
            "tokens": sentences[-1],
            "bases": bases,
            "skipped_sentences": skipped_sentences,
            "skipped_bases": skipped_bases,
            "max_n": max_n,
            "contigs": contigs,
            "passes": plan.passes,
            "strands": plan.strands,
            "max_start_offset": plan.max_start_offset,
            "sentence_bases": list(plan.sentence_bases),
            "sentences_per_document": list(plan.sentences_per_document),
            "seed": seed,
            "files": {
                name: checksum(temporary / name)
                for name in (TOKENS, SENTENCES, DOCUMENTS)
            },
        }
        if regions := name_parts(segments, reference.contigs):
            info["stretches"] = regions  # regions that are read of divided contigs

        write_json(temporary / DESCRIPTION, info)

    return info


class TokenStore:
    """An open store.

    `tokens` (T,), `sentences` (S + 1,) and `documents` (D + 1,) are described above; `info` is the content of
    `store.json`.
    """

    def __init__(self, directory: Path, tokenizer: Tokenizer | None = None) -> None:
        """Open a store; `DataError` if it is damaged or was made with another tokenizer.

        Reads only `store.json` and the sizes of the other files; see `verify`.
        """
        self.directory = Path(directory)
        self.info = info = read_object(self.directory / DESCRIPTION)
        if info.get("format") != FORMAT:
            raise DataError(
                f"{self.directory}: not a token store of format {FORMAT}; tokenize again"
            )

        # A missing key is a `KeyError`.
        with reading(self.directory, "damaged; tokenize again", Exception):
            sha256 = info["tokenizer_sha256"]
            dtype = np.dtype(info["dtype"]).newbyteorder("<")
            path = self.directory / TOKENS
            self.tokens: NDArray[Any] = np.empty(0, dtype)
            if path.stat().st_size:  # an empty file cannot be mapped
                self.tokens = np.memmap(path, dtype, "r").view(np.ndarray)

            self.sentences: NDArray[np.int64] = self._map(SENTENCES)
            self.documents: NDArray[np.int64] = self._map(DOCUMENTS)
            if (len(self.tokens), len(self.sentences), len(self.documents)) != (
                info["tokens"],
                info["sentences"] + 1,
                info["documents"] + 1,
            ):
                raise ValueError("its files have other sizes than in store.json")

        if tokenizer is not None and tokenizer.sha256 != sha256:
            raise DataError(
                f"{self.directory}: made with another tokenizer (sha256 {sha256[:12]}…, "
                f"not {tokenizer.sha256[:12]}…); tokenize again"
            )

    def _map(self, name: str) -> NDArray[np.int64]:
        mapped = np.load(self.directory / name, mmap_mode="r")
        return np.asarray(mapped.view(np.ndarray))

    def verify(self) -> None:
        """Read all files, some seconds per gigabyte; `DataError` if one does not have its checksum."""
        for name, expected in self.info["files"].items():
            if checksum(self.directory / name) != expected:
                raise DataError(f"{self.directory / name}: damaged; tokenize again")
