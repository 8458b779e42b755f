"""Reading YAML (the extra `yaml`) as plain texts, lists and mappings: a password such as 0123 stays the text that it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rocketline.errors import ConfigError

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 64 * 1024 * 1024
TWICE = "a key comes twice"


def load_yaml(path: Path) -> Any:
    """The content of a file; None when it is empty. ConfigError when it cannot be read, without any of its content."""
    modules = _yaml()
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path} has more than {MAX_BYTES} bytes")
    try:
        return _loader(modules)(data).get_single_data()
    except modules.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" near line {mark.line + 1}" if mark is not None else ""
        problem = TWICE if getattr(error, "problem", None) == TWICE else "it is not valid YAML"
        raise ConfigError(f"{path} cannot be read{where}: {problem}") from None
    except (RecursionError, UnicodeError):
        raise ConfigError(f"{path} cannot be read: it is not valid YAML") from None


def dump_yaml(content: Any) -> str:
    return str(_yaml().safe_dump(content, sort_keys=False, allow_unicode=True, width=120))


def _yaml() -> Any:
    try:
        import yaml
    except ImportError as error:
        raise ConfigError(
            f"YAML files need a package that is not installed ({error.name}): pip install 'rocketline[yaml]'"
        ) from error
    return yaml


def _loader(modules: Any) -> Any:
    class Texts(modules.SafeLoader):  # type: ignore[misc]
        """Every scalar is a text, and a key that comes twice is an error: of two accounts one would be lost."""

        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            keys = [getattr(key, "value", None) for key, _ in node.value]
            if len(set(map(str, keys))) < len(keys):
                raise modules.constructor.ConstructorError(problem=TWICE, problem_mark=node.start_mark)
            found: dict[Any, Any] = super().construct_mapping(node, deep)
            return found

    return Texts
