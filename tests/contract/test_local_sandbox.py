"""The contract of sandboxes, kept by local ones: with and without bubblewrap, with cgroups and by affinity alone."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

from arl_tangram.errors import SandboxPathError
from arl_tangram.managers.host.machine import read_machine
from arl_tangram.managers.local.manager import LocalManager
from arl_tangram.managers.local.site import IsolationChoice
from arl_tangram.model.sandbox import Sandbox
from contract.sandbox_contract import SandboxContract


@pytest.mark.usefixtures("bwrap")
@pytest.mark.parametrize("cgroups", [True, False], ids=["cgroups", "advisory"])
@pytest.mark.parametrize("isolation", ["none", "bwrap"])
class TestLocalSandbox(SandboxContract):
    @pytest.fixture
    async def manager(
        self, isolation: IsolationChoice, cgroups: bool, tmp_path_factory: pytest.TempPathFactory
    ) -> AsyncIterator[LocalManager]:
        root = tmp_path_factory.mktemp("sandboxes")
        manager = LocalManager(
            read_machine(),
            cores=2,
            memory_bytes=1 << 30,
            ignore_image=False,
            isolation=isolation,
            root=str(root),
            cgroups=cgroups,
        )
        await manager.start()
        yield manager
        await manager.aclose()
        assert os.listdir(root) == []

    async def test_a_folder_is_not_copied_into_itself(self, box: Sandbox) -> None:
        with pytest.raises(SandboxPathError, match="into itself"):
            await box.put_dir("/", "everything")
