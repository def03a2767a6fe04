"""Names of files and contigs that the workflow's commands and file names can hold."""

import os
import re
from typing import Annotated

from pydantic import AfterValidator

# The longest name that file systems take, and what is left of the longest path for a run's own names.
_LONGEST_NAME, _LONGEST_PATH = 255, 3000
# htslib opens what starts with http:, s3: or data: from there.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")

ASSEMBLY_SYNONYMS = {"hg19": "GRCh37", "hg38": "GRCh38", "R64-1-1": "sacCer3"}
"""Other names of known assemblies, and the names that everything else knows them by."""


def _file(text: str) -> str:
    if not text.strip():
        raise ValueError("a name can't be empty")
    if text != text.strip():
        raise ValueError("a name can't start or end with a space")
    if text.startswith(("-", "~")):
        raise ValueError(f"a name can't start with {text[0]!r}: write the whole path, from '/' on")
    if found := _ADDRESS.match(text):
        raise ValueError(f"a name can't start with {found[0]!r}, which marks an address, no file")
    if found := re.search("[{}<>]", text):
        raise ValueError(f"a name can't hold {found[0]!r}, which marks placeholders of Snakemake")
    size = len(os.fsencode(text))
    if size > _LONGEST_PATH or any(len(os.fsencode(part)) > _LONGEST_NAME for part in text.split("/")):
        raise ValueError("longer than names of files can be")
    return text


def _directory(text: str) -> str:
    _file(text)
    if text.startswith("//") or os.path.normpath(text) == "/":
        raise ValueError("a run needs a directory of its own")
    return text


def _contig(text: str) -> str:
    if not text or text.startswith("-") or any(character.isspace() or character == "`" for character in text):
        raise ValueError(
            "a contig's name has at least one letter, no spaces or backquotes, and no '-' in front"
        )
    return text


def _assembly(text: str) -> str:
    if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]{0,99}", text):
        raise ValueError(
            "an assembly's name has letters, digits, '.', '_' and '-', at most 100 of them, and begins "
            "with a letter or digit"
        )
    return text


FileName = Annotated[str, AfterValidator(_file)]
"""A file or folder that a run reads, or the key of one in sources.yaml."""

DirectoryName = Annotated[str, AfterValidator(_directory)]
"""A directory that a run fills."""

ContigName = Annotated[str, AfterValidator(_contig)]
"""A contig, as FASTA files name theirs: up to the first space; or a region of one, or a shell pattern."""

AssemblyName = Annotated[str, AfterValidator(_assembly)]
"""What a user calls the genome that no table knows."""
