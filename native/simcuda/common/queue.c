/* Work on a card: queueing it, waiting for it, and how much of it a process had. */
#include "common/queue.h"

#define POLL_NS (5 * NS_PER_MS)  /* how soon one who waits sees the death of one before it */
#define SPIN_NS (20 * NS_PER_US) /* a sleep that short would end too late */

static struct run *run_at(struct card *card, unsigned slot, uint64_t number)
{
    return &card->runs[slot][number % RUNS];
}

/* Work that follows directly on the last one makes that run longer: a busy process has few runs. */
static void note_run(struct card *card, unsigned slot, struct run work)
{
    struct share *share = &card->shares[slot];
    struct run *last = run_at(card, slot, share->run_count + RUNS - 1);
    share->busy_ns += work.end_ns - work.start_ns;
    if (share->run_count && last->end_ns == work.start_ns) {
        last->end_ns = work.end_ns;
    } else {
        *run_at(card, slot, share->run_count) = work;
        share->run_count++;
    }
    share->queue_end_ns = work.end_ns;
}

struct run card_queue(const struct attachment *here, struct card *card, uint64_t earliest_ns,
                      uint64_t duration_ns)
{
    struct run work;
    card_lock(card);
    work.start_ns = later(queue_time_locked(card, now_ns()), earliest_ns);
    work.start_ns = later(work.start_ns, card->queue_end_ns);
    work.end_ns = work.start_ns + duration_ns;
    note_run(card, (unsigned)here->slot, work);
    card->queue_end_ns = work.end_ns;
    card_unlock(card);
    return work;
}

uint64_t card_host_time(struct card *card, uint64_t queue_ns)
{
    card_lock(card);
    uint64_t host_ns = host_time_locked(card, queue_ns);
    card_unlock(card);
    return host_ns;
}

uint64_t card_queue_now(struct card *card)
{
    card_lock(card);
    uint64_t queue_ns = queue_time_locked(card, now_ns());
    card_unlock(card);
    return queue_ns;
}

/* Host time when it will have passed, after the dead were swept out of the way. */
static uint64_t expected(const struct attachment *here, struct card *card, uint64_t queue_ns)
{
    card_lock(card);
    if (host_time_locked(card, queue_ns) > now_ns())
        card_sweep_locked(here, card);
    uint64_t host_ns = host_time_locked(card, queue_ns);
    card_unlock(card);
    return host_ns;
}

bool card_passed(const struct attachment *here, struct card *card, uint64_t queue_ns)
{
    uint64_t now = now_ns(); /* queue time is never behind the host's: cheap if long ago */
    return queue_ns <= now || expected(here, card, queue_ns) <= now;
}

static void wait_a_little(uint64_t now, uint64_t host_ns)
{
    if (host_ns - now > SPIN_NS)
        sleep_until(earlier(now + POLL_NS, host_ns - SPIN_NS));
}

bool card_wait(const struct attachment *here, struct card *card, uint64_t queue_ns)
{
    uint64_t host_ns = 0, checked_ns = 0;
    for (uint64_t now = now_ns(); queue_ns > now; now = now_ns()) {
        if (card->lost)
            return false;
        if (now >= checked_ns) {
            host_ns = expected(here, card, queue_ns);
            checked_ns = now + POLL_NS;
        }
        if (host_ns <= now)
            break;
        wait_a_little(now, host_ns);
    }
    return true;
}

static uint64_t overlap(struct run run, uint64_t from_ns, uint64_t until_ns)
{
    uint64_t start_ns = later(run.start_ns, from_ns), end_ns = earlier(run.end_ns, until_ns);
    return end_ns > start_ns ? end_ns - start_ns : 0;
}

uint64_t share_busy_locked(const struct card *card, unsigned slot, uint64_t from_ns,
                           uint64_t until_ns)
{
    uint64_t count = card->shares[slot].run_count, busy_ns = 0;
    uint64_t oldest = count > RUNS ? count - RUNS : 0;
    while (count-- > oldest) {
        struct run run = card->runs[slot][count % RUNS];
        if (run.end_ns <= from_ns)
            break;
        busy_ns += overlap(run, from_ns, until_ns);
    }
    return busy_ns;
}

uint64_t share_known_since_locked(const struct card *card, unsigned slot)
{
    uint64_t count = card->shares[slot].run_count;
    return count > RUNS ? card->runs[slot][count % RUNS].start_ns : 0;
}
