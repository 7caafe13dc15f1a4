/*
 * A red-black tree of numbers.
 *
 * Rules that hold between calls: the root is black; no red node has a red child; each way from a
 * node down to its end has the same number of black nodes. So no way is more than twice as long as
 * another. Both sides are one code: a direction is an index of `child`.
 */
#include <stdlib.h>

#include "kit.h"

enum { LEFT, RIGHT };

void tree_init(struct tree *tree)
{
    tree->root = NULL;
    tree->count = 0;
}

/* Frees all nodes without recursion: rotates until there is no left child, then steps right. */
void tree_free(struct tree *tree)
{
    struct tree_node *node = tree->root;

    while (node != NULL) {
        struct tree_node *left = node->child[LEFT], *next;

        if (left != NULL) {
            node->child[LEFT] = left->child[RIGHT];
            left->child[RIGHT] = node;
            node = left;
            continue;
        }
        next = node->child[RIGHT];
        free(node);
        node = next;
    }
    tree_init(tree);
}

static bool is_red(const struct tree_node *node)
{
    return node != NULL && node->is_red;
}

/* On which side of its parent a node is. */
static int side(const struct tree_node *node)
{
    return node == node->parent->child[RIGHT];
}

/* Puts another node, or none, at the place of a node. */
static void replace(struct tree *tree, struct tree_node *node, struct tree_node *other)
{
    if (node->parent == NULL)
        tree->root = other;
    else
        node->parent->child[side(node)] = other;
    if (other != NULL)
        other->parent = node->parent;
}

/* Moves a node down in a direction; its child of the other side takes its place. */
static void rotate(struct tree *tree, struct tree_node *node, int direction)
{
    struct tree_node *child = node->child[!direction];
    struct tree_node *inner = child->child[direction];

    replace(tree, node, child);
    node->child[!direction] = inner;
    if (inner != NULL)
        inner->parent = node;
    child->child[direction] = node;
    node->parent = child;
}

/* A node was inserted red; its parent may be red, too. */
static void fix_insertion(struct tree *tree, struct tree_node *node)
{
    while (is_red(node->parent)) {
        struct tree_node *parent = node->parent, *above = parent->parent;
        int direction = side(parent);
        struct tree_node *uncle = above->child[!direction];

        if (is_red(uncle)) {
            parent->is_red = false;
            uncle->is_red = false;
            above->is_red = true;
            node = above;
            continue;
        }
        if (side(node) != direction) {
            rotate(tree, parent, direction);
            node = parent;
            parent = node->parent;
        }
        parent->is_red = false;
        above->is_red = true;
        rotate(tree, above, !direction);
    }
    tree->root->is_red = false;
}

bool tree_insert(struct tree *tree, int64_t key, int64_t value)
{
    struct tree_node *parent = NULL, *node = tree->root;
    int direction = LEFT;

    while (node != NULL) {
        if (node->key == key) {
            node->value = value;
            return true;
        }
        parent = node;
        direction = key > node->key;
        node = node->child[direction];
    }
    node = calloc(1, sizeof(*node));
    if (node == NULL)
        return false;
    node->key = key;
    node->value = value;
    node->parent = parent;
    node->is_red = true;
    if (parent == NULL)
        tree->root = node;
    else
        parent->child[direction] = node;
    tree->count++;
    fix_insertion(tree, node);
    return true;
}

struct tree_node *tree_find(const struct tree *tree, int64_t key)
{
    struct tree_node *node = tree->root;

    while (node != NULL && node->key != key)
        node = node->child[key > node->key];
    return node;
}

/* Returns the node with the smallest key that is not below `key`. */
struct tree_node *tree_at_least(const struct tree *tree, int64_t key)
{
    struct tree_node *node = tree->root, *best = NULL;

    while (node != NULL) {
        if (node->key >= key) {
            best = node;
            node = node->child[LEFT];
        } else {
            node = node->child[RIGHT];
        }
    }
    return best;
}

static struct tree_node *outermost(struct tree_node *node, int direction)
{
    while (node != NULL && node->child[direction] != NULL)
        node = node->child[direction];
    return node;
}

struct tree_node *tree_first(const struct tree *tree)
{
    return outermost(tree->root, LEFT);
}

struct tree_node *tree_last(const struct tree *tree)
{
    return outermost(tree->root, RIGHT);
}

static struct tree_node *neighbour(const struct tree_node *node, int direction)
{
    if (node->child[direction] != NULL)
        return outermost(node->child[direction], !direction);
    while (node->parent != NULL && side(node) == direction)
        node = node->parent;
    return node->parent;
}

struct tree_node *tree_next(const struct tree_node *node)
{
    return neighbour(node, RIGHT);
}

struct tree_node *tree_previous(const struct tree_node *node)
{
    return neighbour(node, LEFT);
}

/* The way through `node`, a child of `parent` on that side, lacks one black node. */
static void fix_removal(struct tree *tree, struct tree_node *node, struct tree_node *parent)
{
    while (node != tree->root && !is_red(node)) {
        int direction = node == parent->child[RIGHT];
        struct tree_node *sibling = parent->child[!direction];

        if (is_red(sibling)) {
            sibling->is_red = false;
            parent->is_red = true;
            rotate(tree, parent, direction);
            sibling = parent->child[!direction];
        }
        if (!is_red(sibling->child[LEFT]) && !is_red(sibling->child[RIGHT])) {
            sibling->is_red = true;
            node = parent;
            parent = node->parent;
            continue;
        }
        if (!is_red(sibling->child[!direction])) {
            sibling->child[direction]->is_red = false;
            sibling->is_red = true;
            rotate(tree, sibling, !direction);
            sibling = parent->child[!direction];
        }
        sibling->is_red = parent->is_red;
        parent->is_red = false;
        sibling->child[!direction]->is_red = false;
        rotate(tree, parent, direction);
        node = tree->root;
    }
    if (node != NULL)
        node->is_red = false;
}

bool tree_remove(struct tree *tree, int64_t key)
{
    struct tree_node *node = tree_find(tree, key), *only, *parent;
    bool was_red;

    if (node == NULL)
        return false;
    if (node->child[LEFT] != NULL && node->child[RIGHT] != NULL) {
        /* Its neighbour has at most one child: that one is removed instead. */
        struct tree_node *next = tree_next(node);

        node->key = next->key;
        node->value = next->value;
        node = next;
    }
    only = node->child[LEFT] != NULL ? node->child[LEFT] : node->child[RIGHT];
    parent = node->parent;
    was_red = node->is_red;
    replace(tree, node, only);
    free(node);
    tree->count--;
    if (!was_red && tree->root != NULL)
        fix_removal(tree, only, parent);
    return true;
}

/* Returns the black height of what is below a node; -1 if a rule does not hold there. */
static int check_below(const struct tree_node *node, const struct tree_node *parent)
{
    int left, right;

    if (node == NULL)
        return 1;
    if (node->parent != parent)
        return -1;
    if (node->is_red && (is_red(node->child[LEFT]) || is_red(node->child[RIGHT])))
        return -1;
    if (node->child[LEFT] != NULL && node->child[LEFT]->key >= node->key)
        return -1;
    if (node->child[RIGHT] != NULL && node->child[RIGHT]->key <= node->key)
        return -1;
    left = check_below(node->child[LEFT], node);
    right = check_below(node->child[RIGHT], node);
    if (left < 0 || left != right)
        return -1;
    return left + !node->is_red;
}

int tree_check(const struct tree *tree)
{
    return is_red(tree->root) ? -1 : check_below(tree->root, NULL);
}

static size_t height_below(const struct tree_node *node)
{
    size_t left, right;

    if (node == NULL)
        return 0;
    left = height_below(node->child[LEFT]);
    right = height_below(node->child[RIGHT]);
    return 1 + (left > right ? left : right);
}

size_t tree_height(const struct tree *tree)
{
    return height_below(tree->root);
}

/* Counts the keys from `low` to `high`, both included. */
size_t tree_count_range(const struct tree *tree, int64_t low, int64_t high)
{
    size_t count = 0;

    for (struct tree_node *node = tree_at_least(tree, low); node != NULL && node->key <= high;
         node = tree_next(node))
        count++;
    return count;
}

/* Returns the node with the largest key that is not above `key`. */
struct tree_node *tree_at_most(const struct tree *tree, int64_t key)
{
    struct tree_node *node = tree->root, *best = NULL;

    while (node != NULL) {
        if (node->key <= key) {
            best = node;
            node = node->child[RIGHT];
        } else {
            node = node->child[LEFT];
        }
    }
    return best;
}

/* Returns the node whose key is nearest; the lower one of two. */
struct tree_node *tree_nearest(const struct tree *tree, int64_t key)
{
    struct tree_node *below = tree_at_most(tree, key), *above = tree_at_least(tree, key);

    if (below == NULL || above == NULL)
        return below == NULL ? above : below;
    return (uint64_t)key - (uint64_t)below->key <= (uint64_t)above->key - (uint64_t)key ? below
                                                                                       : above;
}

/* Builds what is below a node of the nodes from `first` on, the lowest level red. */
static struct tree_node *build(struct tree_node **nodes, size_t first, size_t count, size_t level,
                               struct tree_node *parent)
{
    size_t half = count / 2;
    struct tree_node *node;

    if (count == 0)
        return NULL;
    node = nodes[first + half];
    node->parent = parent;
    node->is_red = level == 0;
    node->child[LEFT] = build(nodes, first, half, level - (level > 0), node);
    node->child[RIGHT] =
        build(nodes, first + half + 1, count - half - 1, level - (level > 0), node);
    return node;
}

/* Makes a tree as low as it can be; keeps its nodes. */
bool tree_balance(struct tree *tree)
{
    struct tree_node **nodes = malloc((tree->count + 1) * sizeof(*nodes));
    size_t count = 0, level = 0;

    if (nodes == NULL)
        return false;
    for (struct tree_node *node = tree_first(tree); node != NULL; node = tree_next(node))
        nodes[count++] = node;
    while (((size_t)2 << level) <= count)
        level++;
    tree->root = build(nodes, 0, count, level, NULL);
    if (tree->root != NULL)
        tree->root->is_red = false;
    free(nodes);
    return true;
}

/* Adds all keys of a tree to another one, whose values are kept. */
bool tree_unite(struct tree *into, const struct tree *from)
{
    for (struct tree_node *node = tree_first(from); node != NULL; node = tree_next(node)) {
        if (tree_find(into, node->key) == NULL && !tree_insert(into, node->key, node->value))
            return false;
    }
    return true;
}

/* Counts the keys that two trees have in common, in one pass through both. */
size_t tree_count_common(const struct tree *one, const struct tree *other)
{
    struct tree_node *a = tree_first(one), *b = tree_first(other);
    size_t count = 0;

    while (a != NULL && b != NULL) {
        if (a->key == b->key) {
            count++;
            a = tree_next(a);
            b = tree_next(b);
        } else if (a->key < b->key) {
            a = tree_next(a);
        } else {
            b = tree_next(b);
        }
    }
    return count;
}

/* The largest distance between neighbours, 0 if there are none. */
uint64_t tree_largest_gap(const struct tree *tree)
{
    uint64_t largest = 0;
    const struct tree_node *last = NULL;

    for (struct tree_node *node = tree_first(tree); node != NULL; node = tree_next(node)) {
        uint64_t gap = last == NULL ? 0 : (uint64_t)node->key - (uint64_t)last->key;

        if (gap > largest)
            largest = gap;
        last = node;
    }
    return largest;
}
