"""Fencing: which members may act on a group.

Every command of a member names its member id, and `group.instance.id` if it has one. Those about work that the member
was assigned also name the generation. A process that was suspended or disconnected names an outdated one, so it is
refused here, whatever it believes about its lease.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_storage.errors import FencedInstance, IllegalGeneration, UnknownMember

if TYPE_CHECKING:
    from pyspark_log_coordinator.group.state import Group, Member, MemberId


def check_member(group: Group, member_id: MemberId, instance_id: str) -> Member:
    """Return the member. Raise `FencedInstance` if another one took its `group.instance.id`, or `UnknownMember`."""
    holder = group.instance(instance_id)
    if holder is not None and holder.details.member_id != member_id:
        raise FencedInstance(
            group.group_id,
            member_id,
            f"group {group.group_id!r}: group.instance.id {instance_id!r} belongs to member "
            f"{holder.details.member_id!r} now, so member {member_id!r} is fenced (generation {group.generation}); "
            "stop this process, or give it another group.instance.id",
        )
    known = group.members.get(member_id)
    if known is None or instance_id not in {"", known.details.instance_id}:
        static = f" with group.instance.id {instance_id!r}" if instance_id else ""
        raise UnknownMember(
            group.group_id,
            member_id,
            f"group {group.group_id!r} has no member {member_id!r}{static} in generation "
            f"{group.generation}: its session expired, it was too late to rejoin, or it left; join again as a new "
            "member, and drop what was read since the last commit",
        )
    return known


def check_generation(group: Group, member: Member, generation: int) -> None:
    """Raise `IllegalGeneration` if a member names another generation than the current one, or does not take part."""
    member_id = member.details.member_id
    if generation != group.generation or generation < member.first_generation:
        now_in = f"is in generation {group.generation}"
        if generation == group.generation:
            now_in = f"has member {member_id!r} from generation {member.first_generation} on"
        raise IllegalGeneration(
            group.group_id,
            member_id,
            generation,
            f"group {group.group_id!r} {now_in}, but member {member_id!r} acts in "
            f"generation {generation}: the work was assigned anew in the meantime; rejoin, and drop what was read "
            "since the last commit",
        )
