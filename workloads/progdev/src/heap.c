/* A priority queue in an array, and ways to sort. */
#include <stdlib.h>
#include <string.h>

#include "kit.h"

#define CAPACITY_FIRST 16
/* Shorter ranges are sorted by insertion. */
#define SHORT 12
#define WIDTH_MAX 256

void heap_init(struct heap *heap)
{
    memset(heap, 0, sizeof(*heap));
}

void heap_free(struct heap *heap)
{
    free(heap->keys);
    free(heap->items);
    heap_init(heap);
}

static bool grow(struct heap *heap)
{
    size_t capacity = heap->capacity == 0 ? CAPACITY_FIRST : heap->capacity * 2;
    int64_t *keys;
    void **items;

    if (heap->count < heap->capacity)
        return true;
    keys = realloc(heap->keys, capacity * sizeof(*keys));
    if (keys == NULL)
        return false;
    heap->keys = keys;
    items = realloc(heap->items, capacity * sizeof(*items));
    if (items == NULL)
        return false;
    heap->items = items;
    heap->capacity = capacity;
    return true;
}

static void put(struct heap *heap, size_t place, int64_t key, void *item)
{
    heap->keys[place] = key;
    heap->items[place] = item;
}

bool heap_push(struct heap *heap, int64_t key, void *item)
{
    size_t place;

    if (!grow(heap))
        return false;
    place = heap->count++;
    while (place > 0 && heap->keys[(place - 1) / 2] > key) {
        size_t above = (place - 1) / 2;

        put(heap, place, heap->keys[above], heap->items[above]);
        place = above;
    }
    put(heap, place, key, item);
    return true;
}

/* Takes the item with the smallest key. */
bool heap_pop(struct heap *heap, int64_t *key, void **item)
{
    size_t place = 0;
    int64_t last_key;
    void *last_item;

    if (heap->count == 0)
        return false;
    *key = heap->keys[0];
    *item = heap->items[0];
    heap->count--;
    last_key = heap->keys[heap->count];
    last_item = heap->items[heap->count];
    for (;;) {
        size_t below = 2 * place + 1;

        if (below >= heap->count)
            break;
        if (below + 1 < heap->count && heap->keys[below + 1] < heap->keys[below])
            below++;
        if (heap->keys[below] >= last_key)
            break;
        put(heap, place, heap->keys[below], heap->items[below]);
        place = below;
    }
    if (heap->count > 0)
        put(heap, place, last_key, last_item);
    return true;
}

bool heap_is_valid(const struct heap *heap)
{
    for (size_t place = 1; place < heap->count; place++) {
        if (heap->keys[(place - 1) / 2] > heap->keys[place])
            return false;
    }
    return true;
}

static void *at(void *base, size_t index, size_t width)
{
    return (char *)base + index * width;
}

static const void *at_const(const void *base, size_t index, size_t width)
{
    return (const char *)base + index * width;
}

static void swap(void *one, void *other, size_t width)
{
    char *a = one, *b = other;

    for (size_t byte = 0; byte < width; byte++) {
        char kept = a[byte];

        a[byte] = b[byte];
        b[byte] = kept;
    }
}

void sort_insertion(void *base, size_t count, size_t width, compare compare)
{
    for (size_t next = 1; next < count; next++) {
        for (size_t place = next; place > 0; place--) {
            if (compare(at(base, place - 1, width), at(base, place, width)) <= 0)
                break;
            swap(at(base, place - 1, width), at(base, place, width), width);
        }
    }
}

/* Merges two sorted halves of `from` into `to`. */
static void merge(char *to, const char *from, size_t half, size_t count, size_t width,
                  compare compare)
{
    size_t left = 0, right = half;

    for (size_t place = 0; place < count; place++) {
        bool takes_left = right >= count ||
                          (left < half && compare(from + left * width, from + right * width) <= 0);
        size_t taken = takes_left ? left++ : right++;

        memcpy(to + place * width, from + taken * width, width);
    }
}

static void merge_range(char *base, char *spare, size_t count, size_t width, compare compare)
{
    size_t half = count / 2;

    if (count <= SHORT) {
        sort_insertion(base, count, width, compare);
        return;
    }
    merge_range(base, spare, half, width, compare);
    merge_range(base + half * width, spare, count - half, width, compare);
    if (compare(base + (half - 1) * width, base + half * width) <= 0)
        return;
    memcpy(spare, base, count * width);
    merge(base, spare, half, count, width, compare);
}

/* Keeps the order of equal items; needs as much memory again. */
bool sort_merge(void *base, size_t count, size_t width, compare compare)
{
    char *spare = malloc(count * width + 1);

    if (spare == NULL)
        return false;
    merge_range(base, spare, count, width, compare);
    free(spare);
    return true;
}

static void sink(void *base, size_t place, size_t count, size_t width, compare compare)
{
    for (;;) {
        size_t below = 2 * place + 1;

        if (below >= count)
            return;
        if (below + 1 < count &&
            compare(at(base, below, width), at(base, below + 1, width)) < 0)
            below++;
        if (compare(at(base, place, width), at(base, below, width)) >= 0)
            return;
        swap(at(base, place, width), at(base, below, width), width);
        place = below;
    }
}

void sort_heap(void *base, size_t count, size_t width, compare compare)
{
    for (size_t place = count / 2; place-- > 0;)
        sink(base, place, count, width, compare);
    for (size_t end = count; end-- > 1;) {
        swap(base, at(base, end, width), width);
        sink(base, 0, end, width, compare);
    }
}

/* Returns the index of the middle one of three items. */
static size_t median(void *base, size_t one, size_t two, size_t three, size_t width,
                     compare compare)
{
    const void *a = at(base, one, width), *b = at(base, two, width), *c = at(base, three, width);

    if (compare(a, b) < 0) {
        if (compare(b, c) < 0)
            return two;
        return compare(a, c) < 0 ? three : one;
    }
    if (compare(a, c) < 0)
        return one;
    return compare(b, c) < 0 ? three : two;
}

static void quick_range(char *base, size_t count, size_t width, compare compare, unsigned depth)
{
    while (count > SHORT) {
        char pivot[WIDTH_MAX];
        size_t left = 0, right = count - 1;

        if (depth-- == 0) {
            sort_heap(base, count, width, compare);
            return;
        }
        memcpy(pivot, at(base, median(base, 0, count / 2, count - 1, width, compare), width),
               width);
        for (;;) {
            while (compare(at(base, left, width), pivot) < 0)
                left++;
            while (compare(at(base, right, width), pivot) > 0)
                right--;
            if (left >= right)
                break;
            swap(at(base, left, width), at(base, right, width), width);
            left++;
            right--;
        }
        /* The shorter part by recursion, the longer one in this loop. */
        if (right + 1 < count - right - 1) {
            quick_range(base, right + 1, width, compare, depth);
            base = at(base, right + 1, width);
            count -= right + 1;
        } else {
            quick_range(at(base, right + 1, width), count - right - 1, width, compare, depth);
            count = right + 1;
        }
    }
    sort_insertion(base, count, width, compare);
}

/* Items are at most WIDTH_MAX wide; wider ones are sorted by a heap. */
void sort_quick(void *base, size_t count, size_t width, compare compare)
{
    unsigned depth = 2;

    if (width > WIDTH_MAX) {
        sort_heap(base, count, width, compare);
        return;
    }
    for (size_t rest = count; rest > 1; rest /= 2)
        depth += 2;
    quick_range(base, count, width, compare, depth);
}

/* By digits of eight bits, the lowest first. */
void sort_radix(uint32_t *numbers, size_t count)
{
    uint32_t *spare = malloc(count * sizeof(*spare) + 1);

    if (spare == NULL)
        return;
    for (unsigned shift = 0; shift < 32; shift += 8) {
        size_t places[257] = { 0 };

        for (size_t index = 0; index < count; index++)
            places[(numbers[index] >> shift & 0xff) + 1]++;
        for (size_t digit = 1; digit <= 256; digit++)
            places[digit] += places[digit - 1];
        for (size_t index = 0; index < count; index++)
            spare[places[numbers[index] >> shift & 0xff]++] = numbers[index];
        memcpy(numbers, spare, count * sizeof(*numbers));
    }
    free(spare);
}

bool sort_is_sorted(const void *base, size_t count, size_t width, compare compare)
{
    for (size_t index = 1; index < count; index++) {
        if (compare(at_const(base, index - 1, width), at_const(base, index, width)) > 0)
            return false;
    }
    return true;
}

/* Returns the index of the first item that is not below the key. */
size_t sort_search(const void *key, const void *base, size_t count, size_t width, compare compare)
{
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (compare(at_const(base, middle, width), key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Leaves one of equal neighbours; returns how many are left. */
size_t sort_unique(void *base, size_t count, size_t width, compare compare)
{
    size_t kept = count > 0;

    for (size_t index = 1; index < count; index++) {
        if (compare(at(base, kept - 1, width), at(base, index, width)) == 0)
            continue;
        if (kept != index)
            memcpy(at(base, kept, width), at(base, index, width), width);
        kept++;
    }
    return kept;
}

/* Moves the item that would be at a place in order to that place: by Hoare's selection. */
void sort_select(void *base, size_t count, size_t width, size_t place, compare compare)
{
    size_t low = 0, high = count;

    if (width > WIDTH_MAX || place >= count) {
        sort_heap(base, count, width, compare);
        return;
    }
    while (high - low > SHORT) {
        char pivot[WIDTH_MAX];
        size_t left = low, right = high - 1;

        memcpy(pivot, at(base, low + (high - low) / 2, width), width);
        while (left <= right) {
            while (compare(at(base, left, width), pivot) < 0)
                left++;
            while (compare(at(base, right, width), pivot) > 0)
                right--;
            if (left > right)
                break;
            swap(at(base, left, width), at(base, right, width), width);
            left++;
            if (right == 0)
                break;
            right--;
        }
        if (place <= right)
            high = right + 1;
        else if (place >= left)
            low = left;
        else
            return;
    }
    sort_insertion(at(base, low, width), high - low, width, compare);
}

/* By gaps that shrink, after Shell and Ciura. */
void sort_shell(void *base, size_t count, size_t width, compare compare)
{
    static const size_t gaps[] = { 701, 301, 132, 57, 23, 10, 4, 1 };

    for (size_t step = 0; step < sizeof(gaps) / sizeof(gaps[0]); step++) {
        size_t gap = gaps[step];

        for (size_t next = gap; next < count; next++) {
            for (size_t place = next; place >= gap; place -= gap) {
                if (compare(at(base, place - gap, width), at(base, place, width)) <= 0)
                    break;
                swap(at(base, place - gap, width), at(base, place, width), width);
            }
        }
    }
}

/* Counts the pairs that are in the wrong order, while it sorts by merging. */
uint64_t sort_count_inversions(uint32_t *numbers, size_t count)
{
    size_t half = count / 2, left = 0, right = half;
    uint64_t inversions;
    uint32_t *merged;

    if (count < 2)
        return 0;
    inversions = sort_count_inversions(numbers, half);
    inversions += sort_count_inversions(numbers + half, count - half);
    merged = malloc(count * sizeof(*merged));
    if (merged == NULL)
        return inversions;
    for (size_t place = 0; place < count; place++) {
        if (right >= count || (left < half && numbers[left] <= numbers[right])) {
            merged[place] = numbers[left++];
        } else {
            merged[place] = numbers[right++];
            inversions += half - left;
        }
    }
    memcpy(numbers, merged, count * sizeof(*numbers));
    free(merged);
    return inversions;
}
