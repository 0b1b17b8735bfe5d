"""What changes the cores of running actions, kept by local sandboxes with cgroups: with and without bubblewrap."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

from arl_tangram.managers.local.manager import LocalManager
from arl_tangram.managers.local.site import IsolationChoice
from contract.resizing_contract import ResizingContract
from integration.local_managers import local_manager


@pytest.mark.usefixtures("bwrap")
@pytest.mark.parametrize("isolation", ["none", "bwrap"])
class TestLocalResizing(ResizingContract):
    @pytest.fixture
    async def manager(
        self, isolation: IsolationChoice, tmp_path_factory: pytest.TempPathFactory
    ) -> AsyncIterator[LocalManager]:
        root = tmp_path_factory.mktemp("sandboxes")
        async with local_manager(root, isolation=isolation, resizes=True) as manager:
            yield manager
        assert os.listdir(root) == []
