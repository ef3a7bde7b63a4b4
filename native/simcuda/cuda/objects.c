/* The table of living objects: open addressing, at most half full, keys are addresses. */
#include "cuda/objects.h"

#include <stdint.h>
#include <stdlib.h>

#include "cuda/contexts.h"

static struct object **table;
static size_t table_size, table_used;

static size_t place_of(const void *handle)
{
    return ((uintptr_t)handle >> 4) * 0x9e3779b97f4a7c15ull >> 20 & (table_size - 1);
}

/* Where a handle is, or the empty place where it would be. */
static size_t search(const void *handle)
{
    size_t place = place_of(handle);
    while (table[place] && table[place] != handle)
        place = (place + 1) & (table_size - 1);
    return place;
}

static bool grow(void)
{
    struct object **old = table;
    size_t old_size = table_size;
    struct object **fresh = calloc(old_size ? old_size * 2 : 1024, sizeof *fresh);
    if (!fresh)
        return false;
    table = fresh;
    table_size = old_size ? old_size * 2 : 1024;
    for (size_t i = 0; i < old_size; i++)
        if (old[i])
            table[search(old[i])] = old[i];
    free(old);
    return true;
}

bool object_register(struct object *object, enum kind kind)
{
    if (table_used * 2 >= table_size && !grow())
        return false;
    object->kind = kind;
    table[search(object)] = object;
    table_used++;
    return true;
}

/* No marks are left behind: what follows is moved up if it could not be found otherwise. */
void object_forget(struct object *object)
{
    size_t hole = search(object), place = hole;
    if (table[hole] != object)
        return;
    table[hole] = 0;
    table_used--;
    while (table[place = (place + 1) & (table_size - 1)]) {
        size_t home = place_of(table[place]);
        if (((place - home) & (table_size - 1)) >= ((place - hole) & (table_size - 1))) {
            table[hole] = table[place];
            table[place] = 0;
            hole = place;
        }
    }
}

void *object_find(const void *handle, enum kind kind)
{
    if (!table_size || !handle)
        return 0;
    struct object *object = table[search(handle)];
    return object && object->kind == kind ? object : 0;
}

void objects_prepare(struct object *list)
{
    list->previous = list->next = list;
}

struct object *objects_last(struct object *list)
{
    return list->previous == list ? 0 : list->previous;
}

static void link_into(struct object *list, struct object *object)
{
    object->previous = list->previous;
    object->next = list;
    list->previous->next = object;
    list->previous = object;
}

void *object_new(size_t bytes, enum kind kind, struct context *context)
{
    struct object *object = calloc(1, bytes);
    if (!object)
        return 0;
    if (!object_register(object, kind)) {
        free(object);
        return 0;
    }
    object->context = context;
    if (context)
        link_into(context_objects(context), object);
    return object;
}

void object_delete(void *pointer)
{
    struct object *object = pointer;
    if (object->next) {
        object->previous->next = object->next;
        object->next->previous = object->previous;
    }
    object_forget(object);
    free(object);
}
