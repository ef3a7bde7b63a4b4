/*
 * A card and its queue.
 *
 * All work on a card runs one after the other in the order in which it was queued, whoever queued
 * it. Its times are fixed when it is queued, in *queue time*: a nanosecond axis of the card on
 * which the work of a process that died still has its place. Those places are the card's gaps; the
 * clock jumps over them. So a death lets everything behind it begin earlier, though nobody has to
 * be told: queue time stays, and only its translation into the host's time changes.
 *
 * Functions whose name ends in _locked want the card's mutex held.
 */
#pragma once

#include "common/clock.h"
#include "common/machine.h"

void card_lock(struct card *card);
void card_unlock(struct card *card);

/* Forget what dead processes have on the card: their memory and their queued work. */
void card_sweep(const struct attachment *here, struct card *card);
void card_sweep_locked(const struct attachment *here, struct card *card);

/* Device memory of this process. Refused if the card, or a limit of its cgroup, has no room. */
bool card_reserve(const struct attachment *here, struct card *card, uint64_t bytes);
void card_release(const struct attachment *here, struct card *card, uint64_t bytes);

/* Device memory that live processes use. */
uint64_t card_used(const struct attachment *here, struct card *card);

/* A process on the list of a card's processes has a context there. */
void card_count_context(const struct attachment *here, struct card *card, int change);

/* Queue work that may not begin before `earliest_ns`; returns when it will run. */
struct run card_queue(const struct attachment *here, struct card *card, uint64_t earliest_ns,
                      uint64_t duration_ns);

/* Translations between queue time and the host's time. */
uint64_t card_host_time(struct card *card, uint64_t queue_ns);
uint64_t card_queue_now(struct card *card);
uint64_t queue_time_locked(const struct card *card, uint64_t host_ns);
uint64_t host_time_locked(const struct card *card, uint64_t queue_ns);

/* Wait until a moment of queue time has passed; false if the card is lost meanwhile. */
bool card_wait(const struct attachment *here, struct card *card, uint64_t queue_ns);
bool card_passed(const struct attachment *here, struct card *card, uint64_t queue_ns);

/* Work of a process that ran between two moments of queue time. */
uint64_t share_busy_locked(const struct card *card, unsigned slot, uint64_t from_ns,
                           uint64_t until_ns);

/* The earliest moment since when the runs of a process are still known. */
uint64_t share_known_since_locked(const struct card *card, unsigned slot);

/* Let the not yet done work of a dead process become gaps. */
void gaps_add_locked(struct card *card, unsigned slot);
