"""Hooks of MkDocs: add the generated pages, and rewrite links."""

from pathlib import Path
from typing import Any

# MkDocs adds the folder of this file to the import path.
from generators import commands, configuration, notebook, python_names, root_pages
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

_MADE = {
    "reference/commands.md": commands.page,
    "reference/configuration.md": configuration.page,
    "reference/python.md": python_names.page,
    "notebook.md": notebook.page,
}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that no file of the folder holds."""
    made = {place: make() for place, make in _MADE.items()}
    made |= {
        place: root_pages.page(source) for source, place in root_pages.PAGES.items()
    }
    for place, text in made.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links to files of the repository that are pages of the site lead to these."""
    if page.file.generated_by:
        return markdown
    place = page.file.src_uri
    return root_pages.relinked(markdown, f"docs/{place}", place)


@event_priority(-100)  # once the search has written its index
def on_post_build(config: Any) -> None:
    """Write the search's index as a script too: a page that is opened from disk can read no other file."""
    index = Path(config.site_dir, "search", "search_index.json").read_text(
        encoding="utf-8"
    )
    Path(config.site_dir, "search", "search_index.js").write_text(
        f"var __index = {index}", encoding="utf-8"
    )
