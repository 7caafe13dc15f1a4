/*
 * A hash table from strings to numbers, with open addressing.
 *
 * A key that is inserted takes the place of one that is nearer to its own first place ("Robin
 * Hood"), so that all keys are about equally far from theirs, and a search for a key that is not
 * there ends early. Removal moves the keys after the gap back by one, so no marks of removed keys
 * fill the table.
 */
#include <stdlib.h>
#include <string.h>

#include "kit.h"

#define CAPACITY_FIRST 16
/* The table grows when it is filled by more than this part, in percent. */
#define FILL_PERCENT_MAX 80

void hash_init(struct hash *hash)
{
    hash->slots = NULL;
    hash->capacity = 0;
    hash->used = 0;
}

void hash_free(struct hash *hash)
{
    for (size_t slot = 0; slot < hash->capacity; slot++)
        free(hash->slots[slot].key);
    free(hash->slots);
    hash_init(hash);
}

/* FNV-1a, with a final mix because the table uses the low bits. */
static uint32_t hash_of(const char *key)
{
    uint32_t hash = 2166136261u;

    for (; *key != '\0'; key++) {
        hash ^= (unsigned char)*key;
        hash *= 16777619u;
    }
    hash ^= hash >> 16;
    hash *= 0x85ebca6bu;
    hash ^= hash >> 13;
    return hash;
}

/* How far a slot is from the first place of the key that is in it. */
static size_t distance(const struct hash *hash, size_t slot)
{
    size_t first = hash->slots[slot].hash & (hash->capacity - 1);

    return (slot + hash->capacity - first) & (hash->capacity - 1);
}

static size_t after(const struct hash *hash, size_t slot)
{
    return (slot + 1) & (hash->capacity - 1);
}

/* Finds the slot of a key; the capacity if it is not there. */
static size_t find(const struct hash *hash, const char *key, uint32_t code)
{
    size_t slot, far = 0;

    if (hash->capacity == 0)
        return 0;
    slot = code & (hash->capacity - 1);
    while (hash->slots[slot].key != NULL) {
        if (distance(hash, slot) < far)
            break;
        if (hash->slots[slot].hash == code && strcmp(hash->slots[slot].key, key) == 0)
            return slot;
        slot = after(hash, slot);
        far++;
    }
    return hash->capacity;
}

/* Puts an entry whose key is not in the table into it; there is room. */
static void place(struct hash *hash, struct hash_slot entry)
{
    size_t slot = entry.hash & (hash->capacity - 1), far = 0;

    while (hash->slots[slot].key != NULL) {
        size_t other = distance(hash, slot);

        if (other < far) {
            struct hash_slot richer = hash->slots[slot];

            hash->slots[slot] = entry;
            entry = richer;
            far = other;
        }
        slot = after(hash, slot);
        far++;
    }
    hash->slots[slot] = entry;
    hash->used++;
}

static bool resize(struct hash *hash, size_t capacity)
{
    struct hash_slot *old = hash->slots;
    size_t old_capacity = hash->capacity;
    struct hash_slot *slots = calloc(capacity, sizeof(*slots));

    if (slots == NULL)
        return false;
    hash->slots = slots;
    hash->capacity = capacity;
    hash->used = 0;
    for (size_t slot = 0; slot < old_capacity; slot++) {
        if (old[slot].key != NULL)
            place(hash, old[slot]);
    }
    free(old);
    return true;
}

static bool has_room(struct hash *hash)
{
    if (hash->capacity == 0)
        return resize(hash, CAPACITY_FIRST);
    if ((hash->used + 1) * 100 <= hash->capacity * FILL_PERCENT_MAX)
        return true;
    return hash->capacity <= SIZE_MAX / 2 / sizeof(struct hash_slot) &&
           resize(hash, hash->capacity * 2);
}

bool hash_put(struct hash *hash, const char *key, int64_t value)
{
    uint32_t code = hash_of(key);
    size_t slot = find(hash, key, code);
    struct hash_slot entry = { NULL, value, code };

    if (slot < hash->capacity) {
        hash->slots[slot].value = value;
        return true;
    }
    if (!has_room(hash))
        return false;
    entry.key = strdup(key);
    if (entry.key == NULL)
        return false;
    place(hash, entry);
    return true;
}

bool hash_get(const struct hash *hash, const char *key, int64_t *value)
{
    size_t slot = find(hash, key, hash_of(key));

    if (slot >= hash->capacity)
        return false;
    *value = hash->slots[slot].value;
    return true;
}

/* Adds to the value of a key, which is 0 if it is not there. */
bool hash_add(struct hash *hash, const char *key, int64_t amount)
{
    size_t slot = find(hash, key, hash_of(key));

    if (slot >= hash->capacity)
        return hash_put(hash, key, amount);
    hash->slots[slot].value += amount;
    return true;
}

bool hash_remove(struct hash *hash, const char *key)
{
    size_t slot = find(hash, key, hash_of(key));

    if (slot >= hash->capacity)
        return false;
    free(hash->slots[slot].key);
    for (;;) {
        size_t next = after(hash, slot);

        if (hash->slots[next].key == NULL || distance(hash, next) == 0)
            break;
        hash->slots[slot] = hash->slots[next];
        slot = next;
    }
    hash->slots[slot].key = NULL;
    hash->used--;
    if (hash->capacity > CAPACITY_FIRST && hash->used * 8 < hash->capacity)
        resize(hash, hash->capacity / 2);
    return true;
}

void hash_visit(const struct hash *hash, hash_visitor visitor, void *context)
{
    for (size_t slot = 0; slot < hash->capacity; slot++) {
        const struct hash_slot *entry = &hash->slots[slot];

        if (entry->key != NULL && !visitor(entry->key, entry->value, context))
            return;
    }
}

size_t hash_longest_probe(const struct hash *hash)
{
    size_t longest = 0;

    for (size_t slot = 0; slot < hash->capacity; slot++) {
        if (hash->slots[slot].key != NULL && distance(hash, slot) > longest)
            longest = distance(hash, slot);
    }
    return longest;
}

static int by_key(const void *one, const void *other)
{
    return strcmp(*(const char *const *)one, *(const char *const *)other);
}

/* Lists the keys in order; the caller frees the list, not the keys. */
size_t hash_sorted_keys(const struct hash *hash, const char ***keys)
{
    size_t count = 0;

    *keys = malloc((hash->used + 1) * sizeof(**keys));
    if (*keys == NULL)
        return 0;
    for (size_t slot = 0; slot < hash->capacity; slot++) {
        if (hash->slots[slot].key != NULL)
            (*keys)[count++] = hash->slots[slot].key;
    }
    qsort(*keys, count, sizeof(**keys), by_key);
    return count;
}

/* Copies all entries of a table to an empty one. */
bool hash_copy(struct hash *to, const struct hash *from)
{
    hash_init(to);
    for (size_t slot = 0; slot < from->capacity; slot++) {
        const struct hash_slot *entry = &from->slots[slot];

        if (entry->key != NULL && !hash_put(to, entry->key, entry->value)) {
            hash_free(to);
            return false;
        }
    }
    return true;
}

/* Adds the values of a table to those of another one. */
bool hash_merge(struct hash *into, const struct hash *from)
{
    for (size_t slot = 0; slot < from->capacity; slot++) {
        const struct hash_slot *entry = &from->slots[slot];

        if (entry->key != NULL && !hash_add(into, entry->key, entry->value))
            return false;
    }
    return true;
}

/* Removes the keys that another table does not have; returns how many there were. */
size_t hash_retain(struct hash *hash, const struct hash *wanted)
{
    const char **keys;
    size_t count = hash_sorted_keys(hash, &keys), removed = 0;

    for (size_t key = 0; key < count; key++) {
        int64_t value;

        if (!hash_get(wanted, keys[key], &value))
            removed += hash_remove(hash, keys[key]);
    }
    free(keys);
    return removed;
}

bool hash_is_equal(const struct hash *one, const struct hash *other)
{
    if (one->used != other->used)
        return false;
    for (size_t slot = 0; slot < one->capacity; slot++) {
        const struct hash_slot *entry = &one->slots[slot];
        int64_t value;

        if (entry->key != NULL &&
            (!hash_get(other, entry->key, &value) || value != entry->value))
            return false;
    }
    return true;
}

/* Prints the entries in the order of their keys, a line each. */
bool hash_print(const struct hash *hash, struct text *out)
{
    const char **keys;
    size_t count = hash_sorted_keys(hash, &keys);
    bool is_fine = true;

    for (size_t key = 0; is_fine && key < count; key++) {
        int64_t value = 0;

        hash_get(hash, keys[key], &value);
        is_fine = text_add_format(out, "%s=%lld\n", keys[key], (long long)value);
    }
    free(keys);
    return is_fine;
}

/* Reads what hash_print has written; false if a line has no number. */
bool hash_parse(struct hash *hash, const char *lines)
{
    while (*lines != '\0') {
        size_t length = strcspn(lines, "\n");
        const char *equals = memchr(lines, '=', length);
        char *key, *end;
        int64_t value;
        bool is_fine;

        if (equals == NULL)
            return false;
        value = strtoll(equals + 1, &end, 10);
        if (end == equals + 1 || end != lines + length)
            return false;
        key = strndup(lines, (size_t)(equals - lines));
        is_fine = key != NULL && hash_put(hash, key, value);
        free(key);
        if (!is_fine)
            return false;
        lines += length + (lines[length] == '\n');
    }
    return true;
}

/* An entry for the order by values. */
struct ranked {
    const char *key;
    int64_t value;
};

/* The largest values first; equal ones by their keys. */
static int by_value(const void *one, const void *other)
{
    const struct ranked *a = one, *b = other;

    if (a->value != b->value)
        return a->value > b->value ? -1 : 1;
    return strcmp(a->key, b->key);
}

/* Prints the entries with the largest values, at most so many. */
bool hash_print_top(const struct hash *hash, size_t most, struct text *out)
{
    struct ranked *ranked = malloc((hash->used + 1) * sizeof(*ranked));
    size_t count = 0;
    bool is_fine = ranked != NULL;

    for (size_t slot = 0; is_fine && slot < hash->capacity; slot++) {
        const struct hash_slot *entry = &hash->slots[slot];

        if (entry->key != NULL) {
            ranked[count].key = entry->key;
            ranked[count++].value = entry->value;
        }
    }
    if (is_fine)
        sort_quick(ranked, count, sizeof(*ranked), by_value);
    for (size_t place = 0; is_fine && place < count && place < most; place++)
        is_fine = text_add_format(out, "%lld %s\n", (long long)ranked[place].value,
                                  ranked[place].key);
    free(ranked);
    return is_fine;
}
