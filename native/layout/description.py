"""What the shared files hold, field by field.

| file         | one for each        | written by        | read by                              |
|--------------|---------------------|-------------------|--------------------------------------|
| limits       | tenant              | the node side     | the tenant (a read-only mapping)     |
| region       | tenant              | the tenant        | the node side                        |
| seat         | tenant and card     | the tenant        | all tenants of the card              |
| group limits | group of a tenant   | the node side     | the group (a read-only mapping)      |
| group region | group of a tenant   | the group         | the node side                        |

The limits are a file of their own because a tenant must be able to write its region: a limit that
lives in it could be lifted by whom it limits. Seats are how tenants of one card see each other with
no daemon between them; they tell of time only, never of memory. They are read, not mapped, by
others: a mapped file that its owner cuts short would kill the process that looks at it.

A group is some of a tenant's processes that have less than the tenant: a step of a job. What they
hold is in the tenant's region, each slot with the number of its group, so that both quotas are sums
over the same words. Most tenants have no groups.

Every field is naturally aligned and every word that is changed while others read it is 4 or 8
bytes, so that a plain store is seen whole. Append only, and raise VERSION when anything moves.
"""

import dataclasses

VERSION = 2

CARDS = 16  # cards of one tenant
SLOTS = 1024  # processes of one tenant that use CUDA at the same time
SEATS = 256  # tenants of one card at the same time

MAGIC = {
    "limits": 0x314D494C47525450,
    "region": 0x3147455247525450,
    "seat": 0x3141455347525450,
    "group_limits": 0x314C505247525450,
    "group_region": 0x3152505247525450,
}

MODES = {"NONE": 0, "FIXED": 1, "BURST": 2, "BEST_EFFORT": 3}
ON_FAILURE = {"CLOSED": 0, "OPEN": 1}
WHOLE = 1_000_000  # a share is counted in millionths of a card
FIRST_SEATS = 31  # with a bit of their own in yields_to; the last bit is for all seats behind them


@dataclasses.dataclass(frozen=True)
class Field:
    """A named value of some type, or `count` of them in a row."""

    name: str
    kind: str  # u8, i32, u32, u64, or the name of a struct above
    note: str
    count: int = 1
    rows: int = 1  # 2-dimensional: rows x count


@dataclasses.dataclass(frozen=True)
class Struct:
    """Fields in their order in memory, without gaps."""

    name: str
    note: str
    fields: tuple[Field, ...]


HEADER = (
    Field("magic", "u64", "which of the files this is"),
    Field("version", "u32", "VERSION of the writer"),
    Field("size", "u32", "of the whole file in bytes"),
)

STRUCTS = (
    Struct(
        "limits_card",
        "What the tenant may use of one card",
        (
            Field("uuid", "u8", "as CUDA and NVML give it, without the prefix", 16),
            Field("memory_bytes", "u64", "quota of all processes of the tenant together"),
            Field("context_bytes", "u64", "what one context costs on this card, as measured"),
            Field("mode", "u32", "one of MODES"),
            Field("share", "u32", "of the card's time, in millionths; guaranteed"),
            Field("ceiling", "u32", "mode BURST: never above this, in millionths"),
            Field("paused", "u32", "1: launches wait until it is 0 again"),
            Field("seat", "u32", "the number of the tenant's seat at this card"),
            Field("yields_to", "u32", "a bit for each seat that goes first, see FIRST_SEATS"),
        ),
    ),
    Struct(
        "limits",
        "Written by the node side, mapped read-only by the tenant",
        (
            *HEADER,
            Field("cards", "u32", "how many of card[] are filled"),
            Field("on_failure", "u32", "one of ON_FAILURE: what to do when the fence cannot work"),
            Field("gate", "u32", "not 0: a launch has to look at its card's limits"),
            Field("reserved", "u32", "0"),
            Field("card", "limits_card", "", CARDS),
        ),
    ),
    Struct(
        "region_card",
        "What the tenant did with one card, over all its processes",
        (
            Field("peak_bytes", "u64", "most that was in use at once"),
            Field("refused", "u64", "allocations refused because of the quota"),
            Field("throttled_ns", "u64", "time that launches waited"),
            Field("throttled", "u64", "launches that waited"),
            Field("launches", "u64", "launches that were counted (none in mode NONE)"),
            Field("busy_ns", "u64", "card time that was charged"),
            Field("paid_until_ns", "u64", "CLOCK_MONOTONIC until which the share is used up"),
            Field("paid_share", "u64", "the share that this was reckoned with"),
        ),
    ),
    Struct(
        "region_slot",
        "One process; owned by the one that holds the lock on byte `index` of the file",
        (
            Field("owner", "u64", "drawn anew at each attach; 0: free"),
            Field("pid", "i32", "in the process's own pid namespace"),
            Field("group", "u32", "the number of its group; 0: none"),
        ),
    ),
    Struct(
        "region",
        "Written by the tenant's processes",
        (
            *HEADER,
            Field("slots_used", "u32", "no slot at or above this was ever taken"),
            Field("reserved", "u32", "0; up to a cache line", 11),
            Field("card", "region_card", "", CARDS),
            Field("slot", "region_slot", "", SLOTS),
            Field(
                "used_bytes", "u64", "by card, then by slot: what each process has", SLOTS, CARDS
            ),
            Field("additions", "u64", "by card: raised after used_bytes grew, before a sum", CARDS),
        ),
    ),
    Struct(
        "seat",
        "What the other tenants of a card may know of one",
        (
            *HEADER,
            Field("uuid", "u8", "of the card", 16),
            Field("launches", "u64", "raised before each launch"),
            Field("charged_ns", "u64", "card time of all launches"),
            Field("finished_ns", "u64", "of those that are known to be done"),
            Field("active_until_ns", "u64", "CLOCK_MONOTONIC at which the rest should be done"),
            Field("wanted_ns", "u64", "CLOCK_MONOTONIC at which it last wanted others to wait"),
            Field("reserved", "u64", "0", 3),
        ),
    ),
    Struct(
        "group_limits_card",
        "What a group may use of one card of its tenant",
        (
            Field("memory_bytes", "u64", "quota of all processes of the group together"),
            Field("share", "u32", "of the card's time, in millionths, at most; 0: the tenant's"),
            Field("reserved", "u32", "0"),
        ),
    ),
    Struct(
        "group_limits",
        "Written by the node side, mapped read-only by the group",
        (
            *HEADER,
            Field("number", "u32", "of the group, not 0; its slots have it"),
            Field("reserved", "u32", "0"),
            Field("card", "group_limits_card", "in the order of the tenant's limits", CARDS),
        ),
    ),
    Struct(
        "group_region_card",
        "What a group did with one card, over all its processes",
        (
            Field("peak_bytes", "u64", "most that was in use at once"),
            Field("refused", "u64", "allocations refused because of a quota"),
            Field("paid_until_ns", "u64", "CLOCK_MONOTONIC until which the share is used up"),
            Field("reserved", "u64", "0"),
        ),
    ),
    Struct(
        "group_region",
        "Written by the group's processes",
        (*HEADER, Field("card", "group_region_card", "", CARDS)),
    ),
)
