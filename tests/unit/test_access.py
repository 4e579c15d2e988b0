"""The table of who may call what has a line for every RPC, and says what its head says."""

from typing import Any

import pytest

from shared.access import ACCESS, Caller, Role, permits
from shared.errors import RoleMissing
from shared.layers import Call
from tests.keyed import METHODS


def test_every_rpc_has_its_line_and_every_line_its_rpc() -> None:
    assert ACCESS.keys() == METHODS.keys()


@pytest.mark.parametrize("method", ACCESS)
def test_somebody_may_call_it(method: str) -> None:
    assert ACCESS[method]


def test_each_role_of_a_tenant_may_do_what_the_one_before_it_may() -> None:
    allowed = {role: {method for method in ACCESS if permits(method, role)} for role in Role}
    assert allowed[Role.SENDER] < allowed[Role.OPERATOR] < allowed[Role.ADMIN]


def test_a_sender_cannot_list() -> None:
    assert not any("List" in method or "Bulk" in method for method in ACCESS if permits(method, Role.SENDER))


def test_platform_and_tenants_have_nothing_in_common_but_how_the_queue_stands() -> None:
    both = [method for method, roles in ACCESS.items() if Role.PLATFORM in roles and len(roles) > 1]
    assert both == ["notifyqueue.v1.Scheduler/GetQueueStats"]


@pytest.mark.parametrize("role", [*Role, None])
def test_nobody_may_call_what_has_no_line(role: Role | None) -> None:
    assert not permits("notifyqueue.v1.Scheduler/Unknown", role)


def test_whoever_is_not_known_may_do_nothing() -> None:
    assert not any(permits(method, None) for method in ACCESS)


@pytest.mark.parametrize("caller", [Caller(), Caller("key:0123456789ab", None, Role.PLATFORM)])
def test_a_caller_without_a_tenant_cannot_run_what_is_a_tenants(caller: Caller) -> None:
    context: Any = None
    call = Call("notifyqueue.v1.Scheduler/GetNotification", context, None, "r1", caller)
    with pytest.raises(RoleMissing):
        _ = call.tenant


def test_a_call_that_nobody_has_looked_at_is_nobodys() -> None:
    context: Any = None
    call = Call("notifyqueue.v1.Scheduler/GetNotification", context, None, "r1")
    with pytest.raises(RoleMissing):
        _ = call.tenant
    assert call.actor == ""
