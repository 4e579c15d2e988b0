"""What `make up` keeps from one run to the next."""

import stat
from pathlib import Path

import pytest

from sandbox import plan


def test_a_secret_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "secret_key"
    assert [plan._kept(file, new) for new in ("first", "second")] == ["first", "first"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [*tmp_path.iterdir()] == [file]


def test_a_kill_while_a_secret_is_written_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    file = tmp_path / "secret_key"
    with monkeypatch.context() as early:
        early.setattr(Path, "write_text", killed)
        with pytest.raises(KeyboardInterrupt):
            plan._kept(file, "first")
    assert plan._kept(file, "second") == "second"
