"""Which files are pages of the documentation site: a hook of MkDocs.

Documents lie all over the repository and link to each other by their places in it. The site has them at the same places, so
that one link serves both.
"""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PATTERNS = (
    "*.md", "LICENSE", "docs/**/*.md", "docs/**/*.svg", "docs/**/*.png", "docs/**/*.json", "bench/*.md",
    "examples/**/*.md", "examples/**/*.py", "tests/*.md",
)  # fmt: skip


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the decisions, of which there are more and more."""
    project = next(entry["Project"] for entry in config.nav or [] if "Project" in entry)
    decisions = next(entry for entry in project if "Decisions" in entry)
    decisions["Decisions"] = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("docs/decisions/*.md"))]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The documents, and what the theme brings."""
    documents = sorted({path for pattern in PATTERNS for path in ROOT.glob(pattern) if path.is_file()})
    names = [path.relative_to(ROOT).as_posix() for path in documents]
    pages = [File(name, str(ROOT), config.site_dir, config.use_directory_urls) for name in names]
    return Files([*(file for file in files if file.src_dir != config.docs_dir), *pages])
