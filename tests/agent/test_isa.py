"""`agent isa` as a person types it: one kernel, several architectures, two files, and what is typed wrong."""

from __future__ import annotations

import json
import re
import venv
from pathlib import Path

import pytest

from agent.cli import main
from tests.files import write_files
from tools.hardware import ARCHITECTURES

KERNELS = Path(__file__).resolve().parents[1] / "tools" / "isa" / "kernels" / "kernels.py"
WIDTH = 100
PLAIN = """
import triton
import triton.language as tl

@triton.jit
def scale(x_ptr, n, by, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * by, mask=at < n)
"""
SIGNATURE = {"signature": {"x_ptr": "*bf16", "n": "i32:16", "by": "fp32"}, "constexprs": {"BLOCK": 2048}}
START = """
import torch
from kernels import scale
x = torch.ones(4096, dtype=torch.float16, device="cuda")
scale[(8,)](x, x.numel(), 2.0, BLOCK=512)
"""


def isa(*arguments: object) -> int:
    return main(["isa", *map(str, arguments), "--sandbox", "local"])


pytestmark = pytest.mark.usefixtures("forks")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {"kernels.py": PLAIN, "signature.json": json.dumps(SIGNATURE), "start.py": START}
    return write_files(tmp_path / "given", files)


def test_one_kernel_on_one_architecture_is_shown_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert isa(f"{KERNELS}:matmul") == 0
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert re.fullmatch(r"matmul \(kernels.py:\d+\)", lines[0])
    assert all(len(line) <= WIDTH for line in lines)
    for topic in ("registers", "spills", "LDS", "occupancy", "loads", "stores", "matrix", "waits", "layouts", "to try"):
        assert any(line.startswith(f"  {topic}") for line in lines), topic
    assert "gfx942, by Triton" in shown and "nothing was run" in shown
    assert "mfma_f32_32x32x8_bf16" in shown and "instead of" in shown


def test_all_of_it_can_be_had_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert isa(f"{KERNELS}:softmax", "--arch", "all", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["architecture"] for each in found["results"]] == list(ARCHITECTURES)
    first = found["results"][2]
    assert first["occupancy"]["waves"] == 8 and first["code"]["everywhere"]["loads"] == {"128": 2}
    assert first["faults"] == [] and first["advice"] == []


def test_a_json_file_or_a_launch_describes_a_bare_kernel(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert isa(folder / "kernels.py", "--signature", folder / "signature.json") == 0
    assert "x_ptr *bf16, n i32 :16, by fp32; BLOCK=2048" in capsys.readouterr().out
    assert isa(f"{folder / 'kernels.py'}:scale", "--launch", folder / "start.py") == 0
    assert "x_ptr *fp16, n i32 :16, by fp32; BLOCK=512" in capsys.readouterr().out


def test_two_sources_of_one_machine_code_end_the_attempt(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    renamed = PLAIN.replace("def scale", "def times").replace("at", "where")
    other = write_files(folder / "other", {"renamed.py": renamed})
    given = ("--signature", folder / "signature.json", "--arch", "gfx942,gfx1201")
    assert isa(folder / "kernels.py", "--diff", other / "renamed.py", *given) == 0
    shown = capsys.readouterr().out
    assert shown.count("the same machine code") == 2 and "the attempt ends here" in shown
    write_files(other, {"renamed.py": PLAIN.replace("* by", "+ by")})
    assert isa(folder / "kernels.py", "--diff", other / "renamed.py", *given, "--json") == 0
    assert not json.loads(capsys.readouterr().out)["gfx942"]["same"]


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("kernels.py",), 76, "Name one of them: kernels.py:elementwise"),
        (("kernels.py:no_such",), 76, "holds no kernel no_such; it holds elementwise, histogram, matmul, "),
        (("nowhere.py",), 76, "There is no file"),
        (("kernels.py", "--arch", "sm_90,gfx942"), 78, "Known are gfx908, gfx90a, gfx942, gfx950, gfx1100, gfx1201."),
        (("kernels.py", "--signature", "nowhere.json"), 2, "--signature: nowhere.json cannot be read"),
        (("kernels.py", "--launch", "nowhere.py"), 2, "--launch: there is no file"),
        (("kernels.py", "--launch", str(KERNELS), "--diff", str(KERNELS)), 2, "--diff"),
    ],
)
def test_what_is_asked_for_wrongly_is_said_in_one_message(
    arguments: tuple[str, ...], status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert isa(KERNELS.with_name(arguments[0]), *arguments[1:]) == status
    said = capsys.readouterr().err
    assert says in said and len(said.splitlines()) <= 2


def test_a_description_of_another_form_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content, says in (("{", "JSON"), ('{"warps": 4}', "warps")):
        write_files(folder, {"signature.json": content})
        assert isa(folder / "kernels.py", "--signature", folder / "signature.json") == 2
        assert "--signature" in (said := capsys.readouterr().err) and says in said


def test_what_is_no_kernel_is_not_described_or_does_not_compile_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*arguments: object) -> str:
        assert isa(*arguments) == (76 if "empty" in str(arguments[0]) else 77)
        return capsys.readouterr().err

    described = json.dumps({**SIGNATURE, "constexprs": {"BLOCK": 1000}})
    write_files(folder, {"empty.py": "x = 1\n", "broken.py": "import nothing_like_it\n", "signature.json": described})
    assert "empty.py holds no Triton kernel." in told(folder / "empty.py")
    said = told(folder / "kernels.py")
    assert "Of scale it is not known what these are: x_ptr, n, by, BLOCK." in said and "--signature" in said
    assert "broken.py cannot be loaded: ModuleNotFoundError" in told(folder / "broken.py")
    said = told(folder / "kernels.py", "--signature", folder / "signature.json")
    assert "scale does not compile for gfx942" in said and "power of 2" in said


def test_a_python_without_triton_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    venv.create(tmp_path / "bare")
    assert isa(f"{KERNELS}:softmax", "--python", tmp_path / "bare" / "bin" / "python") == 77
    said = capsys.readouterr().err
    assert "Triton cannot be used" in said and "No module named 'triton'" in said
