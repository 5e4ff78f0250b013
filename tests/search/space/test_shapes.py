"""search.space.shapes: what a user may write for shapes, and one line for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.disk import configs_folder
from kernels.errors import InputError
from kernels.problem import GemmShape
from kernels.tables import lookup
from kernels.tables.file import load_table
from kernels.tables.rows import is_stale
from search.formats.gpumode import BENCHMARK_SHAPES
from search.space.shapes import load_shapes, parse_shapes, shipped_sets

SHIPPED = Path(__file__).resolve().parents[3] / "configs" / "shapes"
LADDER = [1 << i for i in range(14)]  # 1 ... 8192
SET = """\
name: two layers
source: by hand
M: 1..4
shapes:
  - {M: 4, N: 128, K: 64, role: benchmark}
  - {M: 5, N: 128, K: 64, role: test}
layers:
  - {name: up, N: 128, K: 64, source: "2 * 64"}
  - {name: down, M: [3, 8..16], N: 64, K: 128, source: transposed}
  - {name: twin, M: 4, N: 128, K: 64, source: like up}
"""


def shapes_of(*args: str) -> list[tuple[int, int, int]]:
    return [(shape.M, shape.N, shape.K) for shape in parse_shapes(args)]


def written(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("arg", "Ms"),
    [
        ("16x2112x7168", [16]),
        ("1,2,4..64x2112x7168", [1, 2, 4, 8, 16, 32, 64]),
        ("3..12x2112x7168", [3, 6, 12]),
        ("4..4x2112x7168", [4]),
        (" 5 , 7 X 2112 x7168", [5, 7]),
        ("4,1..4,2x2112x7168", [4, 1, 2]),
        ("1..8192x2112x7168", LADDER),
    ],
)
def test_M_may_be_a_list_or_a_ladder(arg: str, Ms: list[int]) -> None:
    assert shapes_of(arg) == [(M, 2112, 7168) for M in Ms]


def test_shapes_keep_their_order_and_come_once() -> None:
    assert shapes_of("8x64x64", "4x64x64", "8,2x64x64") == [(8, 64, 64), (4, 64, 64), (2, 64, 64)]


def test_no_arguments_are_no_shapes() -> None:
    assert parse_shapes([]) == ()


@given(st.lists(st.builds(GemmShape, st.integers(1, 10**6), *[st.integers(1, 999).map(lambda n: 64 * n)] * 2)))
def test_written_shapes_come_back(shapes: list[GemmShape]) -> None:
    assert parse_shapes([str(shape) for shape in shapes]) == tuple(dict.fromkeys(shapes))


@pytest.mark.parametrize(
    ("arg", "problem"),
    [
        ("16x100x7168", "N = 100 must be a positive multiple of 64"),
        ("16x2112x50", "K = 50 must be a positive multiple of 64"),
        ("0x2112x7168", "M = 0 must be at least 1"),
        ("0..8x2112x7168", "M = '0..8' is no ladder; write one that doubles"),
        ("4..60x2112x7168", "M = '4..60' is no ladder; write one that doubles"),
        ("64..4x2112x7168", "M = '64..4' is no ladder; write one that doubles"),
        ("1,,2x2112x7168", "M = '' is no number or ladder; write MxNxK"),
        ("-1x2112x7168", "M = '-1' is no number or ladder"),
        ("ax2112x7168", "M = 'a' is no number or ladder"),
        ("16x2112", "is no shape; write MxNxK, for example 16x2112x7168"),
        ("16x2112x7168x2", "is no shape"),
        ("16x1,2x7168", "is no shape"),
        ("", "is no shape"),
    ],
)
def test_a_wrong_argument_is_quoted_with_the_cure(arg: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_shapes(["1x64x64", arg])
    message = str(caught.value)
    assert message.startswith(f"{arg!r} is no shape; " if problem.startswith("is no shape") else f"shape {arg!r}: ")
    assert problem in message
    assert ";" in message


def test_a_set_has_shapes_then_layers_over_their_ladders(tmp_path: Path) -> None:
    shapes = load_shapes(written(tmp_path, "set.yaml", SET))
    assert shapes.name == "two layers"
    assert shapes.shapes == (
        GemmShape(4, 128, 64),
        GemmShape(5, 128, 64),
        GemmShape(1, 128, 64),
        GemmShape(2, 128, 64),
        GemmShape(3, 64, 128),
        GemmShape(8, 64, 128),
        GemmShape(16, 64, 128),
    )


def test_a_set_without_a_name_is_called_after_its_file(tmp_path: Path) -> None:
    path = written(tmp_path, "mine.yml", "shapes: [{M: 1, N: 64, K: 64}]\n")
    assert load_shapes(path).name == "mine"


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        (
            "N: 128, K: 64, role: test",
            "N: 100, K: 64",
            6,
            "shapes 2: N = 100 must be a positive multiple of 64; correct",
        ),
        ("N: 128, K: 64, role: test", "N: 128, K: 50", 6, "K = 50 must be a positive multiple of 64; correct"),
        ("M: 5,", "M: 0,", 6, "M = 0 must be at least 1; correct"),
        ("M: 5,", "M: five,", 6, "'five' is not a whole number"),
        ("M: 5,", "", 6, "shapes 2: lacks M; add it"),
        ("role: test", "rôle: test", 6, "unknown key; did you mean 'role'? use one of M, N, K, role"),
        ("role: test", "role: tset", 6, "'tset' is unknown; did you mean 'test'? use one of benchmark, test"),
        ("source: by hand", "sources: by hand", 2, "sources: unknown key; did you mean 'source'? use one of name"),
        ("shapes:\n  - {", "shapes:\n    {", 6, "not YAML"),
        ("M: 1..4", "M: 1..3", 3, "M: M = '1..3' is no ladder; write one that doubles"),
        ("M: 1..4", "M: []", 3, "M: is an empty list; write a ladder"),
        ("M: 1..4\n", "", 7, "layers 1: has no M; write `M: 1..8192` in the layer"),
        ('source: "2 * 64"', "why: no", 8, "layers 1 why: unknown key; use one of name, N, K, source, M"),
        (', source: "2 * 64"', "", 8, "layers 1: lacks source; add it"),
        ("N: 64, K: 128", "N: 65, K: 128", 9, "layers 2: N = 65 must be a positive multiple of 64"),
        (SET[SET.index("shapes:") :], "layers: all\n", 4, "layers: must be a list; write - before each member"),
        (SET, "- 1x64x64\n", 1, "must be a mapping"),
    ],
)
def test_each_mistake_in_a_set_is_one_line_with_file_line_and_cure(
    tmp_path: Path, old: str, new: str, line: int, problem: str
) -> None:
    assert old in SET
    path = written(tmp_path, "set.yaml", SET.replace(old, new))
    with pytest.raises(InputError) as caught:
        load_shapes(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: ")
    assert problem in message
    assert "\n" not in message


def test_a_plain_list_has_one_shape_or_ladder_a_line(tmp_path: Path) -> None:
    path = written(tmp_path, "misses.txt", "# asked, not tuned\n16x2112x7168\n\n1..4x64x128  # twice\n16x2112x7168\n")
    shapes = load_shapes(path)
    assert [str(shape) for shape in shapes.shapes] == ["16x2112x7168", "1x64x128", "2x64x128", "4x64x128"]
    assert shapes.name == "misses"


@pytest.mark.parametrize(
    "text",
    [
        "M,N,K\n16,2112,7168\n 8 , 64,  128 \n",
        "M, N, K\r\n16, 2112, 7168\r\n\r\n8, 64, 128\r\n",
        "\ufeffgfx,cu_num,M,N,K,kernelId\ngfx950,256,16,2112,7168,3\ngfx950,256,8,64,128,1\ngfx950,256,8,64,128,2\n",
    ],
    ids=["untuned", "spaces and CRLF", "tuned"],
)
def test_csv_files_of_aiter_are_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a4w4_blockscale_untuned_gemm.csv"
    path.write_bytes(text.encode())
    assert [str(shape) for shape in load_shapes(path).shapes] == ["16x2112x7168", "8x64x128"]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.csv", "M,N,K\n16,100,128\n", ":2: N = 100 must be a positive multiple of 64; correct"),
        ("a.csv", "M,N,K\n1,64,64\n16,64\n", ":3: M, N, K = '16, 64, ' are no whole numbers; correct"),
        ("a.csv", "M,N,K\n16,64,x\n", ":2: M, N, K = '16, 64, x' are no whole numbers"),
        ("a.csv", "m,n\n16,64\n", ":1: the header 'm,n' lacks M, N or K; begin the file with M,N,K"),
        ("a.csv", "M,N,K\n", ": holds no shapes; add one"),
        ("a.csv", "", ": holds no shapes; add one"),
        ("a.txt", "1x64x64\n16x2112\n", ":2: '16x2112' is no shape; write MxNxK"),
        ("a.txt", "0x64x64\n", ":1: M = 0 must be at least 1; correct"),
        ("a.txt", "# nothing\n", ": holds no shapes; add one, for example 16x2112x7168"),
        ("a.yaml", "", ": holds nothing; name a shapes file"),
        ("a.yaml", "shapes: []\n", ": holds no shapes; add one"),
        ("a.yaml", "name: x\n", ": holds no shapes; add one"),
    ],
)
def test_wrong_and_empty_files_are_one_line_with_the_cure(tmp_path: Path, name: str, text: str, problem: str) -> None:
    path = written(tmp_path, name, text)
    with pytest.raises(InputError) as caught:
        load_shapes(path)
    assert str(caught.value).startswith(f"{path}{problem}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["none.yaml", "none.csv", "none.txt"])
def test_a_missing_file_is_named_with_the_cure(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"none\.\w+: no such file; name a shapes file, for example one of configs/"):
        load_shapes(tmp_path / name)


@pytest.mark.parametrize("name", ["folder.yaml", "folder.csv", "folder"])
def test_a_folder_is_no_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        load_shapes(tmp_path / name)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"a\.txt: is no text; name a \.yaml, \.csv or plain list"):
        load_shapes(tmp_path / "a.txt")


def test_the_competition_has_six_benchmark_and_four_test_shapes() -> None:
    assert [str(shape) for shape in load_shapes(SHIPPED / "gpumode.yaml").shapes] == [
        "4x2880x512", "16x2112x7168", "32x4096x512", "32x2880x512", "64x7168x2048", "256x3072x1536",
        "8x2112x7168", "16x3072x1536", "64x3072x1536", "256x2880x512",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "layer", "N", "K"),
    [
        ("deepseek-r1", "fused_qkv_a_proj", 1536 + 512 + 64, 7168),
        ("deepseek-r1", "q_b_proj.tp8", 128 * (128 + 64) // 8, 1536),
        ("deepseek-r1", "kv_b_proj.tp8", 128 * (128 + 128) // 8, 512),
        ("deepseek-r1", "o_proj.tp8", 7168, 128 * 128 // 8),
        ("llama-3.3-70b", "qkv_proj.tp8", (64 + 2 * 8) * 128 // 8, 8192),
        ("llama-3.3-70b", "down_proj", 8192, 28672),
        ("gpt-oss-120b", "qkv_proj", (64 + 2 * 8) * 64, 2880),
        ("gpt-oss-120b", "expert_down_proj", 2880, 2880),
        ("qwen3-235b", "qkv_proj", (64 + 2 * 4) * 128, 4096),
        ("qwen3-235b", "expert_gate_up_proj", 2 * 1536, 4096),
    ],
)
def test_model_layers_have_a_ladder_from_1_to_8192(name: str, layer: str, N: int, K: int) -> None:
    model = load_shapes(SHIPPED / f"{name}.yaml")
    assert [(one.N, one.K, one.last) for one in model.layers if one.name == layer] == [(N, K, LADDER[-1])]
    assert {GemmShape(M, N, K) for M in LADDER} <= set(model.shapes)


def test_the_competition_shapes_are_layers_of_the_models() -> None:
    models = [load_shapes(path) for path in sorted(SHIPPED.glob("*.yaml")) if path.stem != "gpumode"]
    weights = {(shape.N, shape.K) for model in models for shape in model.shapes}
    assert {(shape.N, shape.K) for shape in load_shapes(SHIPPED / "gpumode.yaml").shapes} <= weights


def test_a_model_has_a_tail_in_K() -> None:
    assert any(shape.K % 256 for shape in load_shapes(SHIPPED / "gpt-oss-120b.yaml").shapes)


@pytest.mark.parametrize(
    "text",
    ["m,n,b,k\n16, 64, 1, 128\n", "M;N;K\n16;64;128\n", "M\tN\tK\n16\t64\t128\n", "M,N,K\n16.0,64.0,128.0\n"],
    ids=["small letters", "semicolons", "tabs", "a gap in a column of pandas"],
)
def test_csv_dialects_of_other_projects_are_read(tmp_path: Path, text: str) -> None:
    assert [str(shape) for shape in load_shapes(written(tmp_path, "a.csv", text)).shapes] == ["16x64x128"]


def test_rows_that_no_kernel_supports_are_left_out_together_and_named(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "M,N,K\n1,512,4096\n1,800,5120\n2,800,5120\n16,2112,7168\n")
    shapes = load_shapes(path)
    assert [str(shape) for shape in shapes.shapes] == ["1x512x4096", "16x2112x7168"]
    assert shapes.left_out == (f"{path}: left out: N = 800 must be a positive multiple of 64 (line 3, 4)",)


MODEL = """
name: toy
M: 1..64
steps: {16: 3, 64: 1}
layers:
  - {name: qkv, N: 512, K: 256, calls: 10, tp: [1, 8], source: by hand}
  - {name: expert, N: 128, K: 256, calls: 10, experts: 32, top_k: 4, source: by hand}
  - {name: idle, N: 192, K: 256, source: by hand}
"""


def test_weights_count_the_products_of_a_step_at_the_M_that_serves_them(tmp_path: Path) -> None:
    # 16 tokens x 4 of 32 experts: 2 rows each on all 32; 64 tokens: 8 rows each. 3 of 4 steps have 16 tokens.
    shapes = load_shapes(written(tmp_path, "toy.yaml", MODEL))
    assert {str(shape): weight for shape, weight in shapes.weights.items()} == {
        "16x512x256": 7.5, "64x512x256": 2.5, "2x128x256": 240.0, "8x128x256": 80.0,
    }  # fmt: skip
    assert shapes.layers[1].products(1) == (1, 40)  # one token meets its 4 experts only


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (", top_k: 4", "", "has experts or top_k alone"),
        ("{16: 3, 64: 1}", "[16, 64]", "must be a mapping of tokens"),
        ("{16: 3, 64: 1}", "{0: 1}", "M = '0'"),
    ],
)
def test_mistakes_in_weights_are_one_line(tmp_path: Path, old: str, new: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        load_shapes(written(tmp_path, "toy.yaml", MODEL.replace(old, new)))
    assert problem in str(caught.value) and "\n" not in str(caught.value)


def test_every_shipped_model_counts_its_layers() -> None:
    for name in ("deepseek-r1", "gpt-oss-120b", "llama-3.3-70b", "qwen3-235b"):
        shapes = load_shapes(SHIPPED / f"{name}.yaml")
        assert shapes.layers and set(shapes.weights) <= set(shapes.shapes), name


def test_the_shipped_table_has_rows_of_todays_kernels_for_every_layer_of_the_shipped_sets() -> None:
    table = load_table(configs_folder() / "tables" / "gfx950.yaml")
    layers = {(shape.N, shape.K) for one in shipped_sets() for shape in one.shapes}
    assert len(layers) == 42
    assert [layer for layer in layers if not table.layer(*layer)] == []
    assert [str(row) for row in table.rows if is_stale(row)] == []
    assert [str(shape) for shape in BENCHMARK_SHAPES if lookup(table, shape).how != "exact"] == []
