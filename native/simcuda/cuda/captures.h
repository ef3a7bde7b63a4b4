/* Capturing a stream: what is called on it becomes nodes of a graph. */
#pragma once

#include "cuda/copies.h"
#include "cuda/events.h"
#include "cuda/launches.h"

struct graph;

/* What a capture records; streams join it by waiting for events of others that are in it. */
struct capture {
    struct capture *next;
    unsigned long long id;
    struct graph *graph;
    bool graph_given; /* by the program, which keeps it */
    bool invalid;
    struct stream *origin;  /* where it was begun, and has to end */
    struct stream *streams; /* all that are in it */
};

CUresult capture_begin(struct stream *stream, struct graph *graph);

/* All streams leave; the graph is the caller's, unless the capture was invalid. */
CUresult capture_end(struct stream *stream, struct graph **graph);

/* Nodes that the next one on the stream will depend on, instead of or besides those there are. */
bool capture_depend(struct stream *stream, struct node *const *heads, size_t count, bool besides);

/* The stream ends: so does what was captured on it. */
void capture_abandon(struct stream *stream);

/* A call that cannot be captured makes the capture invalid; returns the error to give. */
CUresult capture_spoil(struct stream *stream);

CUresult capture_launch(struct stream *stream, struct launch *launch);
CUresult capture_host(struct stream *stream, CUhostFn function, void *data);
CUresult capture_allocate(struct stream *stream, CUdeviceptr *address, size_t bytes);
CUresult capture_free(struct stream *stream, CUdeviceptr address);
CUresult capture_record(struct stream *stream, struct event *event, bool external);
CUresult capture_wait(struct stream *stream, struct event *event, bool external);
CUresult capture_graph(struct stream *stream, struct graph *graph);

/* Whether what is copied is there shows when the graph runs: it may be memory of its own nodes. */
CUresult capture_copy(struct stream *stream, const CUDA_MEMCPY3D *params);
CUresult capture_setting(struct stream *stream, const struct setting *setting);
