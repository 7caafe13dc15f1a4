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
