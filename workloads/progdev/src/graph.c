/* Directed graphs whose edges have lengths: ways, orders, components, trees and flows. */
#include <stdlib.h>
#include <string.h>

#include "kit.h"

#define NOWHERE SIZE_MAX

bool graph_init(struct graph *graph, size_t nodes)
{
    memset(graph, 0, sizeof(*graph));
    graph->first = calloc(nodes + 1, sizeof(*graph->first));
    graph->nodes = nodes;
    return graph->first != NULL;
}

void graph_free(struct graph *graph)
{
    free(graph->edges);
    free(graph->first);
    memset(graph, 0, sizeof(*graph));
}

bool graph_add(struct graph *graph, size_t from, size_t to, int64_t length)
{
    struct edge edge = { from, to, length };

    if (from >= graph->nodes || to >= graph->nodes)
        return false;
    if (graph->count == graph->capacity) {
        size_t capacity = graph->capacity == 0 ? 32 : graph->capacity * 2;
        struct edge *edges = realloc(graph->edges, capacity * sizeof(*edges));

        if (edges == NULL)
            return false;
        graph->edges = edges;
        graph->capacity = capacity;
    }
    graph->edges[graph->count++] = edge;
    graph->is_indexed = false;
    return true;
}

static int by_start(const void *one, const void *other)
{
    const struct edge *a = one, *b = other;

    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    return (a->length > b->length) - (a->length < b->length);
}

/* Sorts the edges by the node where they start, and notes the first one of each node. */
bool graph_index(struct graph *graph)
{
    if (graph->is_indexed)
        return true;
    if (!sort_merge(graph->edges, graph->count, sizeof(*graph->edges), by_start))
        return false;
    memset(graph->first, 0, (graph->nodes + 1) * sizeof(*graph->first));
    for (size_t edge = 0; edge < graph->count; edge++)
        graph->first[graph->edges[edge].from + 1]++;
    for (size_t node = 0; node < graph->nodes; node++)
        graph->first[node + 1] += graph->first[node];
    graph->is_indexed = true;
    return true;
}

/* The shortest ways from a node, by Dijkstra's algorithm; no length is below zero. */
bool graph_shortest(struct graph *graph, size_t from, int64_t *distances, size_t *previous)
{
    struct heap heap;
    int64_t distance;
    void *item;
    bool is_fine = graph_index(graph);

    for (size_t node = 0; node < graph->nodes; node++) {
        distances[node] = GRAPH_FAR;
        previous[node] = NOWHERE;
    }
    heap_init(&heap);
    distances[from] = 0;
    is_fine = is_fine && heap_push(&heap, 0, (void *)(uintptr_t)from);
    while (is_fine && heap_pop(&heap, &distance, &item)) {
        size_t node = (size_t)(uintptr_t)item;

        /* A shorter way was found after this one was noted. */
        if (distance > distances[node])
            continue;
        for (size_t edge = graph->first[node]; edge < graph->first[node + 1]; edge++) {
            const struct edge *way = &graph->edges[edge];
            int64_t length = distance + way->length;

            if (length >= distances[way->to])
                continue;
            distances[way->to] = length;
            previous[way->to] = node;
            is_fine = is_fine && heap_push(&heap, length, (void *)(uintptr_t)way->to);
        }
    }
    heap_free(&heap);
    return is_fine;
}

/* Lengths may be below zero here; false if a circle of them is. */
bool graph_bellman_ford(const struct graph *graph, size_t from, int64_t *distances)
{
    bool has_changed = true;

    for (size_t node = 0; node < graph->nodes; node++)
        distances[node] = GRAPH_FAR;
    distances[from] = 0;
    for (size_t round = 0; has_changed && round <= graph->nodes; round++) {
        has_changed = false;
        for (size_t edge = 0; edge < graph->count; edge++) {
            const struct edge *way = &graph->edges[edge];

            if (distances[way->from] == GRAPH_FAR ||
                distances[way->from] + way->length >= distances[way->to])
                continue;
            distances[way->to] = distances[way->from] + way->length;
            has_changed = true;
        }
    }
    return !has_changed;
}

/* All shortest ways, by Floyd's algorithm, in a square of distances. */
bool graph_all_pairs(const struct graph *graph, int64_t *distances)
{
    size_t nodes = graph->nodes;

    for (size_t place = 0; place < nodes * nodes; place++)
        distances[place] = place % (nodes + 1) == 0 ? 0 : GRAPH_FAR;
    for (size_t edge = 0; edge < graph->count; edge++) {
        const struct edge *way = &graph->edges[edge];
        int64_t *distance = &distances[way->from * nodes + way->to];

        if (way->length < *distance)
            *distance = way->length;
    }
    for (size_t middle = 0; middle < nodes; middle++) {
        for (size_t from = 0; from < nodes; from++) {
            int64_t first = distances[from * nodes + middle];

            if (first == GRAPH_FAR)
                continue;
            for (size_t to = 0; to < nodes; to++) {
                int64_t second = distances[middle * nodes + to];

                if (second != GRAPH_FAR && first + second < distances[from * nodes + to])
                    distances[from * nodes + to] = first + second;
            }
        }
    }
    for (size_t node = 0; node < nodes; node++) {
        if (distances[node * nodes + node] < 0)
            return false;
    }
    return true;
}

/* An order in which each edge leads forwards; false if there is a circle. */
bool graph_sort(struct graph *graph, size_t *order)
{
    size_t *incoming = calloc(graph->nodes, sizeof(*incoming));
    size_t ready = 0, done = 0;

    if (incoming == NULL || !graph_index(graph)) {
        free(incoming);
        return false;
    }
    for (size_t edge = 0; edge < graph->count; edge++)
        incoming[graph->edges[edge].to]++;
    for (size_t node = 0; node < graph->nodes; node++) {
        if (incoming[node] == 0)
            order[ready++] = node;
    }
    for (; done < ready; done++) {
        size_t node = order[done];

        for (size_t edge = graph->first[node]; edge < graph->first[node + 1]; edge++) {
            size_t to = graph->edges[edge].to;

            if (--incoming[to] == 0)
                order[ready++] = to;
        }
    }
    free(incoming);
    return done == graph->nodes;
}

/* Finds the name of a set, and shortens the way to it. */
static size_t root_of(size_t *parents, size_t node)
{
    while (parents[node] != node) {
        parents[node] = parents[parents[node]];
        node = parents[node];
    }
    return node;
}

/* Numbers the parts that are connected, whatever the directions; returns how many there are. */
size_t graph_components(struct graph *graph, size_t *component)
{
    size_t *parents = malloc((graph->nodes + 1) * sizeof(*parents));
    size_t count = 0;

    if (parents == NULL)
        return 0;
    for (size_t node = 0; node < graph->nodes; node++)
        parents[node] = node;
    for (size_t edge = 0; edge < graph->count; edge++) {
        size_t one = root_of(parents, graph->edges[edge].from);
        size_t other = root_of(parents, graph->edges[edge].to);

        /* The smaller number is the name, so that a name is numbered before its set. */
        if (one < other)
            parents[other] = one;
        else
            parents[one] = other;
    }
    for (size_t node = 0; node < graph->nodes; node++) {
        size_t root = root_of(parents, node);

        component[node] = root == node ? count++ : component[root];
    }
    free(parents);
    return count;
}

/* What Tarjan's algorithm knows of each node. */
struct tarjan {
    struct graph *graph;
    size_t *component;
    size_t *number;
    size_t *lowest;
    size_t *edge;
    size_t *path;
    size_t *stack;
    bool *on_stack;
    size_t stack_count;
    size_t numbers;
    size_t components;
};

static void enter(struct tarjan *tarjan, size_t node)
{
    tarjan->number[node] = tarjan->lowest[node] = ++tarjan->numbers;
    tarjan->edge[node] = tarjan->graph->first[node];
    tarjan->stack[tarjan->stack_count++] = node;
    tarjan->on_stack[node] = true;
}

static void leave(struct tarjan *tarjan, size_t node)
{
    size_t taken;

    if (tarjan->lowest[node] != tarjan->number[node])
        return;
    do {
        taken = tarjan->stack[--tarjan->stack_count];
        tarjan->on_stack[taken] = false;
        tarjan->component[taken] = tarjan->components;
    } while (taken != node);
    tarjan->components++;
}

/* Without recursion: a path of nodes, each with the edge that is next. */
static void visit(struct tarjan *tarjan, size_t start)
{
    size_t depth = 0;

    enter(tarjan, start);
    tarjan->path[depth++] = start;
    while (depth > 0) {
        size_t node = tarjan->path[depth - 1], to;

        if (tarjan->edge[node] == tarjan->graph->first[node + 1]) {
            leave(tarjan, node);
            depth--;
            if (depth > 0 && tarjan->lowest[node] < tarjan->lowest[tarjan->path[depth - 1]])
                tarjan->lowest[tarjan->path[depth - 1]] = tarjan->lowest[node];
            continue;
        }
        to = tarjan->graph->edges[tarjan->edge[node]++].to;
        if (tarjan->number[to] == 0) {
            enter(tarjan, to);
            tarjan->path[depth++] = to;
        } else if (tarjan->on_stack[to] && tarjan->number[to] < tarjan->lowest[node]) {
            tarjan->lowest[node] = tarjan->number[to];
        }
    }
}

/* Numbers the parts in which each node reaches each other one; returns how many there are. */
size_t graph_strong_components(struct graph *graph, size_t *component)
{
    size_t *memory = calloc(5 * graph->nodes + 1, sizeof(*memory));
    bool *on_stack = calloc(graph->nodes + 1, sizeof(*on_stack));
    struct tarjan tarjan = { .graph = graph, .component = component, .on_stack = on_stack };

    if (memory != NULL && on_stack != NULL && graph_index(graph)) {
        tarjan.number = memory;
        tarjan.lowest = memory + graph->nodes;
        tarjan.edge = memory + 2 * graph->nodes;
        tarjan.path = memory + 3 * graph->nodes;
        tarjan.stack = memory + 4 * graph->nodes;
        for (size_t node = 0; node < graph->nodes; node++) {
            if (tarjan.number[node] == 0)
                visit(&tarjan, node);
        }
    }
    free(memory);
    free(on_stack);
    return tarjan.components;
}

static int by_length(const void *one, const void *other)
{
    const struct edge *const *a = one, *const *b = other;

    if ((*a)->length != (*b)->length)
        return (*a)->length < (*b)->length ? -1 : 1;
    return (*a > *b) - (*a < *b);
}

/* The edges of least length that connect what can be connected, by Kruskal's algorithm. */
int64_t graph_spanning_tree(const struct graph *graph, size_t *chosen, size_t *count)
{
    const struct edge **sorted = malloc((graph->count + 1) * sizeof(*sorted));
    size_t *parents = malloc((graph->nodes + 1) * sizeof(*parents));
    int64_t length = 0;

    *count = 0;
    for (size_t node = 0; parents != NULL && node < graph->nodes; node++)
        parents[node] = node;
    for (size_t edge = 0; sorted != NULL && edge < graph->count; edge++)
        sorted[edge] = &graph->edges[edge];
    if (sorted != NULL && parents != NULL) {
        sort_quick(sorted, graph->count, sizeof(*sorted), by_length);
        for (size_t edge = 0; edge < graph->count; edge++) {
            size_t one = root_of(parents, sorted[edge]->from);
            size_t other = root_of(parents, sorted[edge]->to);

            if (one == other)
                continue;
            parents[one] = other;
            length += sorted[edge]->length;
            chosen[(*count)++] = (size_t)(sorted[edge] - graph->edges);
        }
    }
    free(sorted);
    free(parents);
    return length;
}

/* The most that can flow from a node to another, by the shortest ways with room first. */
int64_t graph_flow(const struct graph *graph, size_t from, size_t to)
{
    size_t nodes = graph->nodes;
    int64_t *room = calloc(nodes * nodes + 1, sizeof(*room)), flow = 0;
    size_t *previous = malloc((nodes + 1) * sizeof(*previous));
    size_t *queue = malloc((nodes + 1) * sizeof(*queue));
    bool is_ready = room != NULL && previous != NULL && queue != NULL;

    for (size_t edge = 0; is_ready && edge < graph->count; edge++)
        room[graph->edges[edge].from * nodes + graph->edges[edge].to] += graph->edges[edge].length;
    while (is_ready && from != to) {
        size_t first = 0, last = 0;
        int64_t least = GRAPH_FAR;

        for (size_t node = 0; node < nodes; node++)
            previous[node] = NOWHERE;
        previous[from] = from;
        queue[last++] = from;
        while (first < last && previous[to] == NOWHERE) {
            size_t node = queue[first++];

            for (size_t next = 0; next < nodes; next++) {
                if (previous[next] == NOWHERE && room[node * nodes + next] > 0) {
                    previous[next] = node;
                    queue[last++] = next;
                }
            }
        }
        if (previous[to] == NOWHERE)
            break;
        for (size_t node = to; node != from; node = previous[node]) {
            if (room[previous[node] * nodes + node] < least)
                least = room[previous[node] * nodes + node];
        }
        for (size_t node = to; node != from; node = previous[node]) {
            room[previous[node] * nodes + node] -= least;
            room[node * nodes + previous[node]] += least;
        }
        flow += least;
    }
    free(room);
    free(previous);
    free(queue);
    return flow;
}

/* Lists the nodes that can be reached, the nearest first; returns how many. */
size_t graph_breadth_first(struct graph *graph, size_t from, size_t *order)
{
    bool *seen = calloc(graph->nodes + 1, sizeof(*seen));
    size_t count = 0;

    if (seen != NULL && graph_index(graph)) {
        seen[from] = true;
        order[count++] = from;
        for (size_t done = 0; done < count; done++) {
            size_t node = order[done];

            for (size_t edge = graph->first[node]; edge < graph->first[node + 1]; edge++) {
                size_t to = graph->edges[edge].to;

                if (!seen[to]) {
                    seen[to] = true;
                    order[count++] = to;
                }
            }
        }
    }
    free(seen);
    return count;
}
