/*
 * Everything a handle can name.
 *
 * A table knows all objects that live, so that a handle which is wrong, of another kind or already
 * destroyed is told from a right one without following it. Objects of a context end with it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum kind {
    KIND_CONTEXT = 1,
    KIND_STREAM,
    KIND_EVENT,
    KIND_MODULE,
    KIND_FUNCTION,
    KIND_LIBRARY,
    KIND_KERNEL,
    KIND_BLOCK, /* has an address and no handle */
    KIND_ARRAY,
    KIND_MIPMAP,
    KIND_POOL,
    KIND_PHYSICAL,
    KIND_GRAPH,
    KIND_NODE,
    KIND_EXEC,
    KIND_LINK,
    KIND_USER,
    KIND_TEXTURE,
    KIND_SURFACE,
    KINDS,
};

struct context;

struct object {
    enum kind kind;
    struct context *context; /* NULL if it belongs to the process */
    struct object *previous, *next;
};

/* A zeroed object of that many bytes, which begins with a struct object; NULL without memory. */
void *object_new(size_t bytes, enum kind kind, struct context *context);
void object_delete(void *object);

/* The object of a handle, or NULL if it is not a living one of that kind. */
void *object_find(const void *handle, enum kind kind);

/* An object that somebody else allocates (the primary contexts), in the table or not. */
bool object_register(struct object *object, enum kind kind);
void object_forget(struct object *object);

/* A context's own list of objects. */
void objects_prepare(struct object *list);
struct object *objects_last(struct object *list);
