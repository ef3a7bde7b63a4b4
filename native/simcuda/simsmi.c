/*
 * simsmi: look at the simulated machine, and make its cards unhealthy.
 *
 * It reads the state file itself rather than through NVML, so that it shows what is true also in a
 * process whose libraries somebody has put a fence around.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/health.h"
#include "common/usage.h"

#define WIDTH 76 /* of the table, inside */

enum { EXIT_USAGE = 2, EXIT_NO_CARD = 6, EXIT_NO_MACHINE = 9 };

static const char HELP[] =
    "simsmi - a look at the simulated GPUs of this machine\n"
    "\n"
    "  simsmi                 show cards, their memory and their processes\n"
    "  simsmi -L              list the cards, one in a line\n"
    "  simsmi -p              list the processes, one in a line: card, process, bytes of memory,\n"
    "                         nanoseconds of work done so far\n"
    "  simsmi xid CARD CODE   raise an Xid error, which NVML tells to those who wait for it\n"
    "  simsmi alarm CODE      raise an Xid error of no card in particular\n"
    "  simsmi ecc CARD COUNT  add errors of memory that cannot be corrected\n"
    "  simsmi soft CARD COUNT add errors of memory that were corrected\n"
    "  simsmi remap CARD 0    let a row of memory wait for its remapping; 1: let that fail\n"
    "  simsmi lose CARD       let a card fall off the bus: nothing works on it any more\n"
    "  simsmi heal CARD       undo all of that\n"
    "  simsmi reset           heal all cards\n"
    "  simsmi unload          let NVML find no driver, until simsmi load\n"
    "\n"
    "CARD is an index or a UUID. The machine is that of SIMCUDA_STATE, and is made if there is\n"
    "none, as SIMCUDA_CARDS or SIMCUDA_CONFIG say.\n"
    "Exit codes: 0 done, 2 wrong usage, 6 no such card, 9 no machine.\n";

static struct attachment here;

static struct machine *machine(void)
{
    static struct settings settings;
    if (!here.machine && machine_attach(&here, &settings, false) != ATTACHED)
        exit(EXIT_NO_MACHINE);
    return here.machine;
}

static int refuse(const char *what)
{
    fprintf(stderr, "simsmi, which looks at simulated GPUs: %s; see simsmi --help\n", what);
    return EXIT_USAGE;
}

static void process_name(pid_t pid, char *name, size_t bytes)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    snprintf(name, bytes, "?");
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (fgets(name, (int)bytes, file))
        name[strcspn(name, "\n")] = 0;
    fclose(file);
}

static int list_cards(void)
{
    const struct facts *facts = &machine()->facts;
    char uuid[41];
    for (uint32_t i = 0; i < facts->card_count; i++) {
        if (!card_seen(&here, i))
            continue;
        print_uuid(facts->cards[i].uuid, uuid);
        printf("GPU %u: %s (UUID: %s)\n", i, facts->cards[i].name, uuid);
    }
    return EXIT_SUCCESS;
}

static void rule(void)
{
    for (int i = 0; i < WIDTH + 4; i++)
        putchar(i == 0 || i == WIDTH + 3 ? '+' : '-');
    putchar('\n');
}

__attribute__((format(printf, 1, 2))) static void row(const char *format, ...)
{
    char text[WIDTH + 1];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    printf("| %-*s |\n", WIDTH, text);
}

static void show_card(uint32_t index)
{
    struct card *card = &machine()->cards[index];
    const struct card_facts *facts = &machine()->facts.cards[index];
    if (card->lost)
        row("%3u  %-32.32s  lost: it fell off the bus", index, facts->name);
    else
        row("%3u  %-32.32s %8lluMiB /%8lluMiB  %3u%%  ECC %llu", index, facts->name,
            card_used(&here, card) / MIB, facts->memory_bytes / MIB,
            card_busy_percent(&here, card, USAGE_WINDOW_NS), (unsigned long long)card->ecc_errors);
}

static void show_process(uint32_t index, const struct usage *usage)
{
    char name[32];
    process_name(usage->pid, name, sizeof name);
    row("%3u %10d  %-21.21s %8lluMiB %12.3fs   %3u%%", index, usage->pid, name,
        (unsigned long long)usage->used_bytes / MIB, (double)usage->total_ns / NS_PER_S,
        usage_percent(usage->busy_ns, usage->window_ns));
}

static void list_process(uint32_t index, const struct usage *usage)
{
    printf("%u %d %llu %llu\n", index, usage->pid, (unsigned long long)usage->used_bytes,
           (unsigned long long)usage->total_ns);
}

static void each_process(void (*show_one)(uint32_t index, const struct usage *usage))
{
    static struct usage usage[SLOTS];
    for (uint32_t i = 0; i < machine()->facts.card_count; i++) {
        if (!card_seen(&here, i))
            continue;
        unsigned count = card_usage(&here, &machine()->cards[i], USAGE_WINDOW_NS, usage);
        for (unsigned j = 0; j < count; j++)
            show_one(i, &usage[j]);
    }
}

static int list_processes(void)
{
    each_process(list_process);
    return EXIT_SUCCESS;
}

static int show(void)
{
    const struct facts *facts = &machine()->facts;
    rule();
    row("SIMSMI    Driver %s    CUDA %u.%u    everything here is simulated", facts->driver,
        facts->cuda_version / 1000, facts->cuda_version % 1000 / 10);
    rule();
    row("GPU  %-32s %11s /%11s  %s", "Name", "Memory", "Total", "Busy");
    for (uint32_t i = 0; i < facts->card_count; i++)
        if (card_seen(&here, i))
            show_card(i);
    rule();
    row("GPU %10s  %-21s %11s %13s   %s", "PID", "Process", "Memory", "Work done", "Busy");
    each_process(show_process);
    rule();
    return EXIT_SUCCESS;
}

/* The index of a card, or no return. */
static uint32_t find_card(const char *text)
{
    const struct facts *facts = &machine()->facts;
    char *end, uuid[41];
    unsigned long number = strtoul(text, &end, 10);
    if (end != text && !*end && number < facts->card_count)
        return (uint32_t)number;
    for (uint32_t i = 0; i < facts->card_count; i++) {
        print_uuid(facts->cards[i].uuid, uuid);
        if (!strcasecmp(uuid, text))
            return i;
    }
    fprintf(stderr, "simsmi: there is no card %s; simsmi -L lists those there are\n", text);
    exit(EXIT_NO_CARD);
}

static void raise_xid(uint32_t card, unsigned long long code)
{
    if (!xid_of_application(code))
        machine()->cards[card].reset_needed = true;
    incident_raise(machine(), (struct incident){card, INCIDENT_XID, code});
}

static void add_errors(uint32_t card, unsigned long long count)
{
    machine()->cards[card].ecc_errors += count;
    machine()->cards[card].reset_needed = true;
    incident_raise(machine(), (struct incident){card, INCIDENT_DOUBLE_BIT, 0});
}

static void add_corrected(uint32_t card, unsigned long long count)
{
    machine()->cards[card].ecc_corrected += count;
    incident_raise(machine(), (struct incident){card, INCIDENT_SINGLE_BIT, 0});
}

static void remap(uint32_t card, unsigned long long failed)
{
    machine()->cards[card].rows |= failed ? ROWS_FAILED : ROWS_PENDING;
}

static void lose(uint32_t card, unsigned long long unused)
{
    (void)unused;
    machine()->cards[card].lost = true;
    raise_xid(card, XID_FALLEN_OFF_THE_BUS);
}

static void heal(uint32_t card, unsigned long long unused)
{
    struct card *healed = &machine()->cards[card];
    (void)unused;
    healed->ecc_errors = healed->ecc_corrected = 0;
    healed->rows = 0;
    healed->reset_needed = false;
    healed->lost = false;
}

static int reset(void)
{
    for (uint32_t i = 0; i < machine()->facts.card_count; i++)
        heal(i, 0);
    return EXIT_SUCCESS;
}

static int set_unloaded(bool unloaded)
{
    __atomic_store_n(&machine()->unloaded, unloaded, __ATOMIC_RELEASE);
    return EXIT_SUCCESS;
}

static const struct command {
    const char *name;
    bool takes_number;
    void (*run)(uint32_t card, unsigned long long number);
} COMMANDS[] = {
    {"xid", true, raise_xid},
    {"ecc", true, add_errors},
    {"soft", true, add_corrected},
    {"remap", true, remap},
    {"lose", false, lose},
    {"heal", false, heal},
};

static bool parse_number(const char *text, unsigned long long *number)
{
    char *end;
    *number = strtoull(text, &end, 10);
    return end != text && !*end;
}

static int run_on_card(const struct command *command, char **arguments, int count)
{
    unsigned long long number = 0;
    if (count != 1 + command->takes_number)
        return refuse("wrong number of arguments");
    uint32_t card = find_card(arguments[0]);
    if (command->takes_number && !parse_number(arguments[1], &number))
        return refuse("not a number");
    command->run(card, number);
    return EXIT_SUCCESS;
}

static int raise_alarm(const char *text)
{
    unsigned long long code;
    if (!parse_number(text, &code))
        return refuse("not a number");
    incident_raise(machine(), (struct incident){NO_CARD, INCIDENT_XID, code});
    return EXIT_SUCCESS;
}

int main(int count, char **arguments)
{
    if (count == 1)
        return show();
    const char *word = arguments[1];
    if (!strcmp(word, "--help") || !strcmp(word, "-h"))
        return fputs(HELP, stdout) < 0;
    if (!strcmp(word, "-L") && count == 2)
        return list_cards();
    if (!strcmp(word, "-p") && count == 2)
        return list_processes();
    if (!strcmp(word, "reset") && count == 2)
        return reset();
    if ((!strcmp(word, "load") || !strcmp(word, "unload")) && count == 2)
        return set_unloaded(*word == 'u');
    if (!strcmp(word, "alarm") && count == 3)
        return raise_alarm(arguments[2]);
    for (size_t i = 0; i < sizeof COMMANDS / sizeof COMMANDS[0]; i++)
        if (!strcmp(word, COMMANDS[i].name))
            return run_on_card(&COMMANDS[i], arguments + 2, count - 2);
    return refuse("unknown command");
}
