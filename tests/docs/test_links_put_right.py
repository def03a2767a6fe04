"""Links of the repository's files on the site."""

import pytest

from docs.generators.markdown import escaped
from docs.generators.python_names import docstring_parts
from docs.generators.root_pages import relinked


@pytest.mark.parametrize(
    ("text", "source", "place", "wanted"),
    [
        ("[a](docs/formats.md#x)", "README.md", "index.md", "[a](formats.md#x)"),
        ("![a](docs/images/y.png)", "README.md", "index.md", "![a](images/y.png)"),
        ("[a](../SECURITY.md)", "docs/reliability.md", "reliability.md", "[a](security.md)"),
        ("[a](../docs/formats.md)", "config/README.md", "howto/workflow.md", "[a](../formats.md)"),
        ("[a](../paper.md#x)", "docs/howto/peaks.md", "howto/peaks.md", "[a](../paper.md#x)"),
        ("[a](CITATION.cff)", "README.md", "index.md", "a"),
        ("[a](docs/tutorial.ipynb)", "README.md", "index.md", "[a](notebook.md)"),
        ("[a](missing.md)", "README.md", "index.md", "[a](missing.md)"),
        ("[a](https://b.org/x)", "README.md", "index.md", "[a](https://b.org/x)"),
        ("[a](#x)", "README.md", "index.md", "[a](#x)"),
    ],
)
def test_a_link_leads_to_the_page_of_its_file(text: str, source: str, place: str, wanted: str) -> None:
    assert relinked(text, source, place) == wanted


def test_signs_stay_signs_and_options_become_code() -> None:
    assert escaped("#contig < 3 *") == "\\#contig &lt; 3 \\*"
    assert escaped("as of -o or `-x <y>`, not half-open") == "as of `-o` or `-x <y>`, not half-open"


def test_a_docstring_s_parts() -> None:
    parts = docstring_parts("One.\n\nTwo.\n\nParameters\n----------\na\n    A.\n\nRaises\n------\nE : why")
    assert parts == [("", "One.\n\nTwo.\n"), ("Parameters", "a\n    A.\n"), ("Raises", "E : why")]
    assert docstring_parts("Alone.") == [("", "Alone.")]
