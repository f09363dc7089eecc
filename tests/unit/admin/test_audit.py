from gateway.admin.access import Caller
from gateway.admin.audit import AuditEntry, AuditResult, AuditTrail
from gateway.admin.tokens import Scope


def test_an_entry_says_who_did_what_from_where_with_which_result() -> None:
    entries: list[AuditEntry] = []
    trail = AuditTrail(entries.append, lambda: 1234.5)
    caller = Caller(name="admin.token", scope=Scope.ADMIN, peer="10.0.0.9")
    trail.note(caller, "config.reload", result=AuditResult.REFUSED, details=("gateway.yaml:1:1: no",))
    assert entries == [
        AuditEntry(
            at_wall=1234.5,
            actor="admin.token",
            scope="admin",
            peer="10.0.0.9",
            action="config.reload",
            result=AuditResult.REFUSED,
            details=("gateway.yaml:1:1: no",),
        )
    ]
