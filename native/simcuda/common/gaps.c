/*
 * Gaps in a card's queue, and the two clocks that they drive apart.
 *
 * The list is kept twice. A new one is written beside the true one and then declared true by one
 * store: who is killed in between has changed nothing. Adding is a union, so doing it twice for the
 * same dead process, as when the first one to bury it died over it, does no harm.
 */
#include <stdlib.h>

#include "common/queue.h"

static const struct gaps *true_gaps(const struct card *card)
{
    return &card->gaps[card->gaps_active & 1];
}

/* From the latest gap backwards: almost always all lie behind, and the first test ends it. */
uint64_t host_time_locked(const struct card *card, uint64_t queue_ns)
{
    const struct gaps *gaps = true_gaps(card);
    uint64_t skipped_ns = gaps->total_ns;
    for (uint64_t i = gaps->count; i && gaps->list[i - 1].end_ns > queue_ns; i--)
        skipped_ns -= gaps->list[i - 1].end_ns - later(gaps->list[i - 1].start_ns, queue_ns);
    return queue_ns - skipped_ns;
}

uint64_t queue_time_locked(const struct card *card, uint64_t host_ns)
{
    const struct gaps *gaps = true_gaps(card);
    uint64_t queue_ns = host_ns + gaps->total_ns;
    for (uint64_t i = gaps->count; i && gaps->list[i - 1].end_ns > queue_ns; i--)
        queue_ns -= gaps->list[i - 1].end_ns - gaps->list[i - 1].start_ns;
    return queue_ns;
}

/* The runs that a process had still to come, oldest first; each is cut off where it is now. */
static uint64_t runs_to_come(struct card *card, unsigned slot, uint64_t now_queue_ns,
                             struct run *to_come)
{
    uint64_t count = card->shares[slot].run_count, found = 0, first = count;
    while (first && count - first < RUNS &&
           card->runs[slot][(first - 1) % RUNS].end_ns > now_queue_ns)
        first--;
    for (; first < count && found < GAPS; first++) {
        struct run run = card->runs[slot][first % RUNS];
        run.start_ns = later(run.start_ns, now_queue_ns);
        to_come[found++] = run;
    }
    return found;
}

/* Work that will not happen was no work: else it would count as busy time when its moment comes. */
static void cut_off(struct card *card, unsigned slot, uint64_t now_queue_ns)
{
    uint64_t count = card->shares[slot].run_count;
    for (uint64_t i = count; i && count - i < RUNS; i--) {
        struct run *run = &card->runs[slot][(i - 1) % RUNS];
        if (run->end_ns <= now_queue_ns)
            break;
        run->start_ns = earlier(run->start_ns, now_queue_ns);
        run->end_ns = now_queue_ns;
    }
}

/* Append to a list in order; what overlaps or touches its last gap makes that one longer. */
static void append(struct gaps *gaps, struct run gap)
{
    struct run *last = gaps->count ? &gaps->list[gaps->count - 1] : 0;
    if (last && gap.start_ns <= last->end_ns) {
        uint64_t end_ns = later(last->end_ns, gap.end_ns);
        gaps->total_ns += end_ns - last->end_ns;
        last->end_ns = end_ns;
        return;
    }
    gaps->list[gaps->count++] = gap;
    gaps->total_ns += gap.end_ns - gap.start_ns;
}

static uint64_t length_ns(const struct gaps *gaps, uint64_t first)
{
    uint64_t ns = 0;
    for (uint64_t i = first; i < gaps->count; i++)
        ns += gaps->list[i].end_ns - gaps->list[i].start_ns;
    return ns;
}

/* If there are too many, the oldest are forgotten: they are long past, and stay in the total. */
static void merge(struct gaps *merged, const struct gaps *old, const struct run *added,
                  uint64_t added_count)
{
    uint64_t j = 0, i = old->count + added_count > GAPS ? old->count + added_count - GAPS : 0;
    merged->count = 0;
    merged->total_ns = old->total_ns - length_ns(old, i);
    while (i < old->count || j < added_count) {
        bool from_old =
            j == added_count || (i < old->count && old->list[i].start_ns <= added[j].start_ns);
        append(merged, from_old ? old->list[i++] : added[j++]);
    }
}

void gaps_add_locked(struct card *card, unsigned slot)
{
    uint64_t now_queue_ns = queue_time_locked(card, now_ns());
    struct run *to_come = malloc(GAPS * sizeof *to_come);
    uint64_t count = to_come ? runs_to_come(card, slot, now_queue_ns, to_come) : 0;
    if (count) {
        merge(&card->gaps[(card->gaps_active + 1) & 1], true_gaps(card), to_come, count);
        __atomic_store_n(&card->gaps_active, card->gaps_active + 1, __ATOMIC_RELEASE);
        cut_off(card, slot, now_queue_ns);
    }
    free(to_come);
}
