"""The files that the fence shares with the node side, as ctypes.

Made from native/layout/description.py by `python -m native.layout`; change that one.
"""

import ctypes
from typing import ClassVar

VERSION = 2
CARDS = 16
SLOTS = 1024
SEATS = 256
FIRST_SEATS = 31
WHOLE = 1_000_000
LIMITS_MAGIC = 0x314D494C47525450
REGION_MAGIC = 0x3147455247525450
SEAT_MAGIC = 0x3141455347525450
GROUP_LIMITS_MAGIC = 0x314C505247525450
GROUP_REGION_MAGIC = 0x3152505247525450
MODE_NONE = 0
MODE_FIXED = 1
MODE_BURST = 2
MODE_BEST_EFFORT = 3
ON_FAILURE_CLOSED = 0
ON_FAILURE_OPEN = 1


class LimitsCard(ctypes.LittleEndianStructure):
    """What the tenant may use of one card."""

    _fields_: ClassVar = [
        ("uuid", ctypes.c_uint8 * 16),  # as CUDA and NVML give it, without the prefix
        ("memory_bytes", ctypes.c_uint64),  # quota of all processes of the tenant together
        ("context_bytes", ctypes.c_uint64),  # what one context costs on this card, as measured
        ("mode", ctypes.c_uint32),  # one of MODES
        ("share", ctypes.c_uint32),  # of the card's time, in millionths; guaranteed
        ("ceiling", ctypes.c_uint32),  # mode BURST: never above this, in millionths
        ("paused", ctypes.c_uint32),  # 1: launches wait until it is 0 again
        ("seat", ctypes.c_uint32),  # the number of the tenant's seat at this card
        ("yields_to", ctypes.c_uint32),  # a bit for each seat that goes first, see FIRST_SEATS
    ]


class Limits(ctypes.LittleEndianStructure):
    """Written by the node side, mapped read-only by the tenant."""

    _fields_: ClassVar = [
        ("magic", ctypes.c_uint64),  # which of the files this is
        ("version", ctypes.c_uint32),  # VERSION of the writer
        ("size", ctypes.c_uint32),  # of the whole file in bytes
        ("cards", ctypes.c_uint32),  # how many of card[] are filled
        ("on_failure", ctypes.c_uint32),  # one of ON_FAILURE: what to do when the fence cannot work
        ("gate", ctypes.c_uint32),  # not 0: a launch has to look at its card's limits
        ("reserved", ctypes.c_uint32),  # 0
        ("card", LimitsCard * 16),
    ]


class RegionCard(ctypes.LittleEndianStructure):
    """What the tenant did with one card, over all its processes."""

    _fields_: ClassVar = [
        ("peak_bytes", ctypes.c_uint64),  # most that was in use at once
        ("refused", ctypes.c_uint64),  # allocations refused because of the quota
        ("throttled_ns", ctypes.c_uint64),  # time that launches waited
        ("throttled", ctypes.c_uint64),  # launches that waited
        ("launches", ctypes.c_uint64),  # launches that were counted (none in mode NONE)
        ("busy_ns", ctypes.c_uint64),  # card time that was charged
        ("paid_until_ns", ctypes.c_uint64),  # CLOCK_MONOTONIC until which the share is used up
        ("paid_share", ctypes.c_uint64),  # the share that this was reckoned with
    ]


class RegionSlot(ctypes.LittleEndianStructure):
    """One process; owned by the one that holds the lock on byte `index` of the file."""

    _fields_: ClassVar = [
        ("owner", ctypes.c_uint64),  # drawn anew at each attach; 0: free
        ("pid", ctypes.c_int32),  # in the process's own pid namespace
        ("group", ctypes.c_uint32),  # the number of its group; 0: none
    ]


class Region(ctypes.LittleEndianStructure):
    """Written by the tenant's processes."""

    _fields_: ClassVar = [
        ("magic", ctypes.c_uint64),  # which of the files this is
        ("version", ctypes.c_uint32),  # VERSION of the writer
        ("size", ctypes.c_uint32),  # of the whole file in bytes
        ("slots_used", ctypes.c_uint32),  # no slot at or above this was ever taken
        ("reserved", ctypes.c_uint32 * 11),  # 0; up to a cache line
        ("card", RegionCard * 16),
        ("slot", RegionSlot * 1024),
        # by card, then by slot: what each process has
        ("used_bytes", (ctypes.c_uint64 * 1024) * 16),
        ("additions", ctypes.c_uint64 * 16),  # by card: raised after used_bytes grew, before a sum
    ]


class Seat(ctypes.LittleEndianStructure):
    """What the other tenants of a card may know of one."""

    _fields_: ClassVar = [
        ("magic", ctypes.c_uint64),  # which of the files this is
        ("version", ctypes.c_uint32),  # VERSION of the writer
        ("size", ctypes.c_uint32),  # of the whole file in bytes
        ("uuid", ctypes.c_uint8 * 16),  # of the card
        ("launches", ctypes.c_uint64),  # raised before each launch
        ("charged_ns", ctypes.c_uint64),  # card time of all launches
        ("finished_ns", ctypes.c_uint64),  # of those that are known to be done
        ("active_until_ns", ctypes.c_uint64),  # CLOCK_MONOTONIC at which the rest should be done
        ("wanted_ns", ctypes.c_uint64),  # CLOCK_MONOTONIC at which it last wanted others to wait
        ("reserved", ctypes.c_uint64 * 3),  # 0
    ]


class GroupLimitsCard(ctypes.LittleEndianStructure):
    """What a group may use of one card of its tenant."""

    _fields_: ClassVar = [
        ("memory_bytes", ctypes.c_uint64),  # quota of all processes of the group together
        ("share", ctypes.c_uint32),  # of the card's time, in millionths, at most; 0: the tenant's
        ("reserved", ctypes.c_uint32),  # 0
    ]


class GroupLimits(ctypes.LittleEndianStructure):
    """Written by the node side, mapped read-only by the group."""

    _fields_: ClassVar = [
        ("magic", ctypes.c_uint64),  # which of the files this is
        ("version", ctypes.c_uint32),  # VERSION of the writer
        ("size", ctypes.c_uint32),  # of the whole file in bytes
        ("number", ctypes.c_uint32),  # of the group, not 0; its slots have it
        ("reserved", ctypes.c_uint32),  # 0
        ("card", GroupLimitsCard * 16),  # in the order of the tenant's limits
    ]


class GroupRegionCard(ctypes.LittleEndianStructure):
    """What a group did with one card, over all its processes."""

    _fields_: ClassVar = [
        ("peak_bytes", ctypes.c_uint64),  # most that was in use at once
        ("refused", ctypes.c_uint64),  # allocations refused because of a quota
        ("paid_until_ns", ctypes.c_uint64),  # CLOCK_MONOTONIC until which the share is used up
        ("reserved", ctypes.c_uint64),  # 0
    ]


class GroupRegion(ctypes.LittleEndianStructure):
    """Written by the group's processes."""

    _fields_: ClassVar = [
        ("magic", ctypes.c_uint64),  # which of the files this is
        ("version", ctypes.c_uint32),  # VERSION of the writer
        ("size", ctypes.c_uint32),  # of the whole file in bytes
        ("card", GroupRegionCard * 16),
    ]
