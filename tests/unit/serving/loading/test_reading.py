from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from registry.errors import CheckpointError, IntegrityError
from serving.engine.messages import FileDigest
from serving.loading.inventory import check_files, digests_of
from serving.loading.reading import read_checkpoint, tensors_of
from tests.support.checkpoints import flip_byte
from tests.support.tiny_models import ARCHITECTURES, save_tiny

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(ARCHITECTURES["qwen2"], tmp_path_factory.mktemp("original"))


@pytest.fixture
def checkpoint(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "model"))


def shards(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.safetensors"))


def test_tensors_and_documents_are_those_of_the_files(checkpoint: Path) -> None:
    read = read_checkpoint(checkpoint, digests_of(checkpoint), CPU)
    expected = {n: t for shard in shards(checkpoint) for n, t in load_file(shard).items()}
    assert len(shards(checkpoint)) > 2
    assert read.tensors.keys() == expected.keys()
    assert all(torch.equal(read.tensors[name], expected[name]) for name in expected)
    assert read.documents["config.json"] == (checkpoint / "config.json").read_bytes()


def test_progress_ends_at_the_total(checkpoint: Path) -> None:
    told: list[tuple[int, int]] = []
    files = digests_of(checkpoint)
    read_checkpoint(checkpoint, files, CPU, lambda done, total: told.append((done, total)))
    total = sum(file.size for file in files)
    assert told[-1] == (total, total)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


@pytest.mark.parametrize("name", ["model-00002*.safetensors", "config.json"])
def test_one_flipped_bit_is_found_and_the_file_named(checkpoint: Path, name: str) -> None:
    files = digests_of(checkpoint)
    (victim,) = checkpoint.glob(name)
    flip_byte(victim)
    with pytest.raises(IntegrityError) as caught:
        read_checkpoint(checkpoint, files, CPU)
    assert caught.value.where == victim.name and caught.value.fix


def test_a_file_of_another_size_is_found_before_it_is_read(checkpoint: Path) -> None:
    files = digests_of(checkpoint)
    with shards(checkpoint)[0].open("ab") as file:
        file.write(b"more")
    with pytest.raises(IntegrityError, match="bytes, the manifest says"):
        read_checkpoint(checkpoint, files, CPU)


def test_a_missing_file_is_named(checkpoint: Path) -> None:
    files = digests_of(checkpoint)
    shards(checkpoint)[1].unlink()
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(checkpoint, files, CPU)
    assert caught.value.where == files[-1].path or "model-00002" in caught.value.where


def test_a_later_change_of_the_file_does_not_reach_the_weights(checkpoint: Path) -> None:
    read = read_checkpoint(checkpoint, digests_of(checkpoint), CPU)
    before = {name: tensor.clone() for name, tensor in read.tensors.items()}
    for shard in shards(checkpoint):
        shard.write_bytes(b"\xff" * shard.stat().st_size)
    assert all(torch.equal(before[name], read.tensors[name]) for name in before)


def test_a_weight_file_outside_the_manifest_is_refused(checkpoint: Path) -> None:
    files = digests_of(checkpoint)
    known = tuple(file for file in files if file.path != shards(checkpoint)[0].name)
    with pytest.raises(CheckpointError, match="not in the manifest"):
        check_files(checkpoint, known)
    check_files(checkpoint, files)


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        save_file({"weight": torch.zeros(2)}, tmp_path / name)
    files = tuple(digest(tmp_path / name) for name in ("a.safetensors", "b.safetensors"))
    with pytest.raises(CheckpointError, match="two shards"):
        read_checkpoint(tmp_path, files, CPU)


def digest(path: Path) -> FileDigest:
    import hashlib

    data = path.read_bytes()
    return FileDigest(path.name, len(data), hashlib.sha256(data).hexdigest())


def in_memory(path: Path) -> torch.Tensor:
    return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)


def test_every_dtype_that_is_served_and_odd_shapes(tmp_path: Path) -> None:
    dtypes = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool)
    saved = {str(dtype): torch.ones(3, 2).to(dtype) for dtype in dtypes}
    saved |= {"scalar": torch.tensor(2.5), "empty": torch.zeros(0, 4)}
    save_file(saved, tmp_path / "m.safetensors")
    read = tensors_of(in_memory(tmp_path / "m.safetensors"), "m.safetensors")
    assert all(torch.equal(read[name], saved[name]) for name in saved)
    assert {n: (t.dtype, t.shape) for n, t in read.items()} == {
        n: (t.dtype, t.shape) for n, t in saved.items()
    }


def test_data_that_is_not_aligned_to_its_dtype_is_read_right() -> None:
    header = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    odd = header + b" " * (9 - (8 + len(header)) % 8)  # the data begins at an odd offset
    assert (8 + len(odd)) % 4
    data = len(odd).to_bytes(8, "little") + odd + torch.tensor([1.5, -2.0]).numpy().tobytes()
    read = tensors_of(torch.frombuffer(bytearray(data), dtype=torch.uint8), "w")
    assert read["w"].tolist() == [1.5, -2.0]


def test_a_dtype_that_cant_be_served_is_named(tmp_path: Path) -> None:
    save_file({"w": torch.zeros(2).to(torch.float8_e4m3fn)}, tmp_path / "m.safetensors")
    with pytest.raises(CheckpointError, match="F8_E4M3"):
        tensors_of(in_memory(tmp_path / "m.safetensors"), "m.safetensors")
