/* Uses each part of the library, and prints what comes of it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kit.h"

static const char poem[] =
    "A tree whose nodes are red and black\n"
    "is never twice as deep as it must be;\n"
    "a table with its keys in place\n"
    "is never full, and never waits.\n"
    "A heap, whose smallest comes to light,\n"
    "is sorted only where it must;\n"
    "a tree, a table and a heap\n"
    "are all that most programs keep.\n";

static void test_strings(void)
{
    struct text text, other;
    size_t count;
    char **parts = text_split("usr:bin::lib", ':', &count);

    text_init(&text);
    text_init(&other);
    for (size_t part = 0; part < count; part++)
        text_add_format(&text, "[%s]", parts[part]);
    text_free_parts(parts, count);
    printf("split %zu %s\n", count, text.bytes);
    printf("replace %zu", text_replace(&text, "[]", "<none>"));
    printf(" %s\n", text.bytes);
    printf("distance %zu %zu\n", text_distance("kitten", "sitting"), text_distance("", "abc"));
    printf("glob %d %d %d %d\n", text_is_glob_match("*.[ch]", "hash.c"),
           text_is_glob_match("a*b*c", "aXbYbZc"), text_is_glob_match("[!a]?", "ab"),
           text_is_glob_match("\\*", "*"));
    text_encode_base64(&other, poem, 40);
    printf("base64 %s\n", other.bytes);
    text_clear(&text);
    printf("decoded %d ", text_decode_base64(&text, other.bytes));
    printf("%d\n", memcmp(text.bytes, poem, 40) == 0);
    text_clear(&text);
    text_wrap(&text, poem, 30);
    fputs(text.bytes, stdout);
    text_clear(&text);
    text_add_string(&text, " \t trimmed \n");
    text_trim(&text);
    printf("trim <%s>\n", text.bytes);
    text_free(&text);
    text_free(&other);
}

static bool sum_value(const char *key, int64_t value, void *context)
{
    (void)key;
    *(int64_t *)context += value;
    return true;
}

static void test_hash(void)
{
    struct hash hash;
    struct text word;
    const char **keys;
    int64_t value = 0, sum = 0;
    size_t count;

    hash_init(&hash);
    text_init(&word);
    for (const char *at = poem; *at != '\0'; at++) {
        if (*at == ' ' || *at == '\n') {
            if (word.length > 0)
                hash_add(&hash, word.bytes, 1);
            text_clear(&word);
        } else {
            text_add_char(&word, *at);
        }
    }
    hash_visit(&hash, sum_value, &sum);
    count = hash_sorted_keys(&hash, &keys);
    printf("words %lld, different %zu:", (long long)sum, count);
    for (size_t key = 0; key < count; key++) {
        hash_get(&hash, keys[key], &value);
        if (value > 2)
            printf(" %s %lld", keys[key], (long long)value);
    }
    free(keys);
    for (int number = 0; number < 5000; number++) {
        text_clear(&word);
        text_add_format(&word, "key %d", number);
        hash_put(&hash, word.bytes, number);
    }
    for (int number = 0; number < 5000; number += 3) {
        text_clear(&word);
        text_add_format(&word, "key %d", number);
        hash_remove(&hash, word.bytes);
    }
    printf("; kept %zu, near %d,", hash.used, hash_longest_probe(&hash) < 40);
    printf(" found %d", hash_get(&hash, "key 4999", &value));
    printf(" %d\n", hash_get(&hash, "key 3", &value));
    text_free(&word);
    hash_free(&hash);
}

static void test_tree(void)
{
    struct tree tree;
    struct random random;
    int64_t sum = 0;
    bool is_right = true;

    tree_init(&tree);
    random_seed(&random, 1);
    for (int number = 0; number < 3000; number++)
        tree_insert(&tree, (int64_t)random_below(&random, 10000), number);
    is_right = tree_check(&tree) > 0;
    printf("tree %zu, at least 5000: %lld,", tree.count,
           (long long)tree_at_least(&tree, 5000)->key);
    for (struct tree_node *node = tree_first(&tree); node != NULL; node = tree_next(node))
        sum += node->key;
    for (struct tree_node *node = tree_last(&tree); node != NULL; node = tree_previous(node))
        sum -= node->key;
    for (int64_t key = 0; key < 10000; key += 2) {
        tree_remove(&tree, key);
        is_right = is_right && (key % 100 != 0 || tree_check(&tree) > 0);
    }
    printf(" left %zu, sum %lld, rules %d, low %d\n", tree.count, (long long)sum, is_right,
           tree_height(&tree) <= 22);
    tree_free(&tree);
}

static int by_number(const void *one, const void *other)
{
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;

    return (a > b) - (a < b);
}

static void test_heap(void)
{
    enum { COUNT = 4000 };
    static uint32_t numbers[5][COUNT];
    struct random random;
    struct heap heap;
    int64_t key, last = -1;
    void *item;
    bool is_right = true;
    uint32_t wanted;

    heap_init(&heap);
    random_seed(&random, 2);
    for (size_t place = 0; place < COUNT; place++) {
        numbers[0][place] = (uint32_t)random_below(&random, 6000);
        heap_push(&heap, numbers[0][place], NULL);
    }
    is_right = heap_is_valid(&heap);
    while (heap_pop(&heap, &key, &item)) {
        is_right = is_right && key >= last;
        last = key;
    }
    heap_free(&heap);
    for (size_t copy = 1; copy < 5; copy++)
        memcpy(numbers[copy], numbers[0], sizeof(numbers[0]));
    sort_quick(numbers[0], COUNT, sizeof(uint32_t), by_number);
    sort_merge(numbers[1], COUNT, sizeof(uint32_t), by_number);
    sort_heap(numbers[2], COUNT, sizeof(uint32_t), by_number);
    sort_radix(numbers[3], COUNT);
    sort_insertion(numbers[4], COUNT, sizeof(uint32_t), by_number);
    for (size_t copy = 0; copy < 5; copy++)
        is_right = is_right && sort_is_sorted(numbers[copy], COUNT, 4, by_number) &&
                   memcmp(numbers[copy], numbers[0], sizeof(numbers[0])) == 0;
    wanted = numbers[0][2000];
    printf("heap and sorts %d, found %d, different %zu\n", is_right,
           numbers[0][sort_search(&wanted, numbers[0], COUNT, 4, by_number)] == wanted,
           sort_unique(numbers[0], COUNT, 4, by_number));
}

static void test_matrix(void)
{
    struct matrix matrix, inverse, product, power;
    double right[4] = { 1, 2, 3, 4 }, solution[4], off = 0, coefficients[3];
    double x[6], y[6];

    matrix_init(&matrix, 4, 4);
    for (size_t row = 0; row < 4; row++) {
        for (size_t column = 0; column < 4; column++)
            matrix_set(&matrix, row, column, 1.0 / (double)(row + column + 1) + (row == column));
    }
    matrix_invert(&inverse, &matrix);
    matrix_multiply(&product, &matrix, &inverse);
    for (size_t cell = 0; cell < 16; cell++)
        off = fmax(off, fabs(product.cells[cell] - (cell % 5 == 0)));
    matrix_solve(&matrix, right, solution);
    matrix_power(&power, &matrix, 5);
    printf("matrix det %.6f rank %zu inverse %d eigenvalue %.4f power %.3f\n",
           matrix_determinant(&matrix), matrix_rank(&matrix), off < 1e-12,
           matrix_dominant_eigenvalue(&matrix, 50), matrix_get(&power, 0, 0));
    printf("solution %.4f %.4f %.4f %.4f\n", solution[0], solution[1], solution[2], solution[3]);
    for (int point = 0; point < 6; point++) {
        x[point] = point;
        y[point] = 2 - 3 * point + 0.5 * point * point;
    }
    matrix_fit_polynomial(x, y, 6, 2, coefficients);
    printf("fit %.3f %.3f %.3f\n", coefficients[0], coefficients[1], coefficients[2]);
    matrix_free(&matrix);
    matrix_free(&inverse);
    matrix_free(&product);
    matrix_free(&power);
}

static void test_regex(void)
{
    static const char *const patterns[] = {
        "a*b", "(ab|cd)+e?", "[a-c]{2,3}x", "^\\d+\\.\\d*$", "h.llo|world", "(a?){20}a{20}",
        "[^ ]+ly", "(", "a{3,1}", "*",
    };
    static const char *const strings[] = {
        "aaab", "abcdabe", "zabcx", "12.5", "say hello", "aaaaaaaaaaaaaaaaaaaa", "nearly always",
    };

    for (size_t pattern = 0; pattern < sizeof(patterns) / sizeof(patterns[0]); pattern++) {
        const char *error;
        struct regex *regex = regex_compile(patterns[pattern], &error);

        printf("regex %s:", patterns[pattern]);
        for (size_t string = 0; regex != NULL && string < 7; string++) {
            size_t start, length;

            if (regex_search(regex, strings[string], &start, &length))
                printf(" %zu+%zu%s", start, length,
                       regex_is_match(regex, strings[string]) ? "!" : "");
            else
                printf(" -");
        }
        if (regex == NULL)
            printf(" %s", error);
        else
            printf(" %zu", regex_count(regex, "aab aab 12 3.4"));
        putchar('\n');
        regex_free(regex);
    }
}

static void test_language(void)
{
    static const char source[] =
        "# Primes, a recursion, and conditions.\n"
        "fn is_prime(n) { let d = 2; while d * d <= n { if n % d == 0 { return false; }\n"
        "    d = d + 1; } return n > 1; }\n"
        "fn fib(n) { if n < 2 { return n; } return fib(n - 1) + fib(n - 2); }\n"
        "let n = 0; let count = 0; let sum = 0;\n"
        "while n < 2000 { if is_prime(n) { count = count + 1; sum = sum + n; } n = n + 1; }\n"
        "print \"primes:\"; print count; print sum; print fib(18);\n"
        "if not (count > 300 and sum < 10) or false { print 0x1f + 0b101 * 1_000; }\n"
        "else { print \"never\"; }\n";
    static const char *const wrong[] = {
        "let = 3;", "print 1 / 0;", "while true { }", "fn f(a) { return f(a); } f(1);", "print x;",
        "print 99999999999999999999;", "/* no end",
    };
    size_t counts[TOKEN_ERROR + 1];
    struct text out;
    const char *error;

    text_init(&out);
    printf("tokens %zu,", lexer_count(source, counts));
    printf(" names %zu\n", counts[TOKEN_NAME]);
    printf("language %d\n", interp_run(source, &out, 10000000, &error));
    fputs(out.bytes, stdout);
    for (size_t number = 0; number < sizeof(wrong) / sizeof(wrong[0]); number++) {
        interp_run(wrong[number], &out, 100000, &error);
        printf("wrong: %s\n", error);
    }
    text_free(&out);
}

static void test_bignum(void)
{
    struct bignum a, b, c, d;
    struct text out;

    bignum_init(&a);
    bignum_init(&b);
    bignum_init(&c);
    bignum_init(&d);
    text_init(&out);
    bignum_factorial(&a, 60);
    bignum_print(&a, &out);
    printf("60! = %s\n", out.bytes);
    bignum_parse(&b, "123456789012345678901234567890");
    bignum_divide(&c, &d, &a, &b);
    bignum_multiply(&c, &c, &b);
    bignum_add(&c, &c, &d);
    printf("division %d", bignum_compare(&c, &a) == 0);
    bignum_set(&b, 3);
    bignum_power(&a, &b, 2000);
    bignum_multiply(&c, &a, &a);
    bignum_power(&d, &b, 4000);
    printf(" power %d", bignum_compare(&c, &d) == 0);
    bignum_square_root(&d, &c);
    printf(" root %d", bignum_compare(&d, &a) == 0);
    bignum_parse(&a, "1000000007");
    bignum_set(&c, 1000000006);
    bignum_power_mod(&d, &b, &c, &a);
    text_clear(&out);
    bignum_print(&d, &out);
    printf(" fermat %s", out.bytes);
    bignum_factorial(&a, 20);
    bignum_power(&c, &b, 30);
    bignum_gcd(&d, &a, &c);
    text_clear(&out);
    bignum_print(&d, &out);
    printf(" gcd %s\n", out.bytes);
    bignum_free(&a);
    bignum_free(&b);
    bignum_free(&c);
    bignum_free(&d);
    text_free(&out);
}

static void test_calendar(void)
{
    struct text out;
    struct date_time time;
    struct date easter = calendar_easter(2026), moved;
    struct date january = { 2024, 1, 31 };
    int64_t seconds;
    bool is_right = true;

    text_init(&out);
    calendar_parse("2026-11-23T13:45:07", &time);
    calendar_format(&time, "%A, %e %B %Y, day %j, week %G-%V, %I:%M %p, %s", &out);
    printf("%s\n", out.bytes);
    for (int64_t days = -800000; days < 800000; days += 97) {
        struct date date = calendar_from_days(days);

        is_right = is_right && calendar_is_date(&date) && calendar_to_days(&date) == days;
    }
    moved = calendar_add_months(&january, 13);
    printf("easter %d-%02d-%02d, month on %d-%02d-%02d, days %d\n", easter.year, easter.month,
           easter.day, moved.year, moved.month, moved.day, is_right);
    text_clear(&out);
    calendar_print_month(2024, 2, &out);
    fputs(out.bytes, stdout);
    text_clear(&out);
    printf("duration %d", calendar_parse_duration("1w2d3h4m5s", &seconds));
    calendar_print_duration(seconds + 3600 * 22, &out);
    printf(" %s, wrong %d %d\n", out.bytes, calendar_parse("2023-02-29", &time),
           calendar_parse_duration("5s1h", &seconds));
    text_free(&out);
}

static void test_diff(void)
{
    struct text changed, patch, back;

    text_init(&changed);
    text_init(&patch);
    text_init(&back);
    text_add_string(&changed, poem);
    text_replace(&changed, "is never full, and never waits.\n", "is seldom full.\nIt does not wait.\n");
    text_replace(&changed, "a tree, a table and a heap\n", "");
    diff_print(poem, changed.bytes, 1, &patch);
    fputs(patch.bytes, stdout);
    printf("applies %d", diff_apply(poem, patch.bytes, &back));
    printf(" %d, similarity %.3f,", strcmp(back.bytes, changed.bytes) == 0,
           diff_similarity(poem, changed.bytes));
    printf(" to another %d\n", diff_apply(changed.bytes, patch.bytes, &back));
    text_free(&changed);
    text_free(&patch);
    text_free(&back);
}

static void test_digest(void)
{
    char hex[65];
    uint8_t key[16];

    for (uint8_t byte = 0; byte < 16; byte++)
        key[byte] = byte;
    sha256_of("abc", 3, hex);
    printf("sha256 %s\n", hex);
    sha256_of(poem, sizeof(poem), hex);
    printf("sha256 %s\n", hex);
    md5_of("message digest", 14, hex);
    printf("md5 %s\n", hex);
    hmac_sha256_of("Jefe", 4, "what do ya want for nothing?", 28, hex);
    printf("hmac %s\n", hex);
    printf("crc32 %08x adler32 %08x siphash %016llx\n", crc32_of("123456789", 9),
           adler32_of("Wikipedia", 9), (unsigned long long)siphash_of(key, key, 15));
}

static void test_graph(void)
{
    enum { NODES = 60 };
    struct graph graph;
    struct random random;
    static int64_t distances[NODES], others[NODES], pairs[NODES * NODES];
    size_t previous[NODES], order[NODES], component[NODES], chosen[400], count;
    int64_t tree, sum = 0;
    bool agree = true;

    graph_init(&graph, NODES);
    random_seed(&random, 3);
    for (int edge = 0; edge < 200; edge++)
        graph_add(&graph, (size_t)random_below(&random, NODES), (size_t)random_below(&random, NODES),
                  1 + (int64_t)random_below(&random, 100));
    graph_all_pairs(&graph, pairs);
    for (size_t from = 0; from < NODES; from++) {
        graph_shortest(&graph, from, distances, previous);
        graph_bellman_ford(&graph, from, others);
        for (size_t to = 0; to < NODES; to++) {
            agree = agree && distances[to] == others[to] && distances[to] == pairs[from * NODES + to];
            sum += distances[to] == GRAPH_FAR ? 0 : distances[to];
        }
    }
    tree = graph_spanning_tree(&graph, chosen, &count);
    printf("graph ways %d sum %lld tree %lld of %zu", agree, (long long)sum, (long long)tree, count);
    printf(" parts %zu", graph_components(&graph, component));
    printf(" strong %zu", graph_strong_components(&graph, component));
    printf(" reached %zu", graph_breadth_first(&graph, 0, order));
    printf(" flow %lld", (long long)graph_flow(&graph, 0, NODES - 1));
    printf(" sorted %d", graph_sort(&graph, order));
    graph_free(&graph);
    graph_init(&graph, 5);
    for (size_t node = 0; node + 1 < 5; node++)
        graph_add(&graph, node + 1, node, 1);
    printf(" %d", graph_sort(&graph, order));
    printf(" %zu\n", order[0]);
    graph_free(&graph);
}

typedef bool (*packer)(const uint8_t *data, size_t length, struct bytes *out);

static void test_packer(const char *name, packer pack, packer unpack, const uint8_t *data,
                        size_t length)
{
    struct bytes packed, back;

    bytes_init(&packed);
    bytes_init(&back);
    pack(data, length, &packed);
    printf("%s %zu -> %zu", name, length, packed.length);
    printf(" %d", unpack(packed.data, packed.length, &back));
    printf(" %d\n", back.length == length && memcmp(back.data, data, length) == 0);
    bytes_free(&packed);
    bytes_free(&back);
}

static void test_compression(void)
{
    struct bytes data;

    bytes_init(&data);
    for (int copy = 0; copy < 20; copy++) {
        for (const char *at = poem; *at != '\0'; at++)
            bytes_add(&data, (uint8_t)*at);
        for (int zero = 0; zero < copy * 37; zero++)
            bytes_add(&data, 0);
    }
    printf("entropy %.4f\n", huffman_entropy(data.data, data.length));
    test_packer("huffman", huffman_pack, huffman_unpack, data.data, data.length);
    test_packer("lz", lz_pack, lz_unpack, data.data, data.length);
    test_packer("runs", run_length_pack, run_length_unpack, data.data, data.length);
    test_packer("front", move_to_front, move_to_front_back, data.data, data.length);
    bytes_free(&data);
}

static void test_json(void)
{
    static const char source[] =
        "{\"name\": \"irq \\u00e4\\ud83d\\ude00\\n\", \"runs\": [{\"ns\": 1.5e3, \"ok\": true}, null],"
        " \"empty\": {}, \"list\": [1, -2, 0.125, []]}";
    static const char *const wrong[] = {
        "{\"a\": }", "[1, 2", "01", "\"\\x\"", "[1] 2", "{\"a\" 1}", "1.", "\"\\ud800\"",
    };
    const char *error;
    struct json *value = json_parse(source, &error), *again;
    struct text out;

    text_init(&out);
    json_print(value, &out, 2);
    printf("%s\n", out.bytes);
    again = json_parse(out.bytes, &error);
    printf("json again %d, depth %zu, nodes %zu, ns %.0f\n", json_is_equal(value, again),
           json_depth(value), json_nodes(value), json_at(value, "runs/0/ns")->number);
    json_free(value);
    json_free(again);
    for (size_t number = 0; number < sizeof(wrong) / sizeof(wrong[0]); number++) {
        value = json_parse(wrong[number], &error);
        printf("wrong: %s\n", value == NULL ? error : "accepted");
        json_free(value);
    }
    text_free(&out);
}

static void test_random(void)
{
    enum { COUNT = 20000 };
    static double values[COUNT], others[COUNT];
    struct random random;
    struct summary summary;
    struct text out;
    uint64_t counts[10] = { 0 };
    double expected[10];
    size_t items[10] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 };

    random_seed(&random, 4);
    text_init(&out);
    for (size_t place = 0; place < COUNT; place++) {
        values[place] = random_normal(&random);
        others[place] = 0.6 * values[place] + 0.8 * random_normal(&random);
        counts[random_below(&random, 10)]++;
    }
    summarise(values, COUNT, &summary);
    printf("normal mean %d deviation %d median %d skewness %d correlation %.2f\n",
           fabs(summary.mean) < 0.03, fabs(summary.deviation - 1) < 0.03,
           fabs(summary.median) < 0.03, fabs(summary.skewness) < 0.1,
           correlation(values, others, COUNT));
    for (size_t place = 0; place < 10; place++)
        expected[place] = COUNT / 10.0;
    printf("even %d, ", chi_square(counts, expected, 10) < 27.9);
    for (size_t place = 0; place < COUNT; place++)
        values[place] = random_unit(&random);
    printf("unit %d, poisson %u", kolmogorov_distance(values, COUNT) < 0.014,
           random_poisson(&random, 100));
    random_shuffle(&random, items, 10);
    printf(", exponential %d, shuffled", random_exponential(&random, 2) > 0);
    for (size_t place = 0; place < 10; place++)
        printf(" %zu", items[place]);
    putchar('\n');
    histogram_print(values, COUNT, 4, &out);
    fputs(out.bytes, stdout);
    text_free(&out);
}

/* What belongs to two parts of the library, or came to one of them later. */
static void test_more(void)
{
    struct hash hash, copy;
    struct tree tree, other;
    struct text text;
    uint32_t numbers[500], inversions[6] = { 3, 1, 2, 6, 5, 4 };
    uint64_t values[200], back[200];
    struct bytes packed, unpacked;
    struct random random;
    struct date from = { 2024, 2, 29 }, to = { 2026, 11, 23 }, date;
    struct line_fit fit;
    double x[50], y[50], low, high, kept[10];
    size_t seen = 0;
    int64_t farthest;
    char hex[65];

    hash_init(&hash);
    text_init(&text);
    hash_parse(&hash, "one=1\ntwo=2\nthree=3\nten=10\n");
    hash_copy(&copy, &hash);
    printf("equal %d", hash_is_equal(&hash, &copy));
    hash_merge(&copy, &hash);
    hash_remove(&hash, "ten");
    printf(" retained %zu", hash_retain(&copy, &hash));
    hash_print(&copy, &text);
    hash_print_top(&copy, 2, &text);
    printf(" wrong %d\n%s", hash_parse(&hash, "x\n"), text.bytes);
    hash_free(&hash);
    hash_free(&copy);

    tree_init(&tree);
    tree_init(&other);
    for (int64_t key = 0; key < 1000; key += 3)
        tree_insert(&tree, key, key);
    for (int64_t key = 0; key < 1000; key += 7)
        tree_insert(&other, key, -key);
    tree_balance(&tree);
    printf("tree %d range %zu nearest %lld common %zu", tree_check(&tree) > 0,
           tree_count_range(&tree, 10, 100), (long long)tree_nearest(&tree, 500)->key,
           tree_count_common(&tree, &other));
    tree_unite(&tree, &other);
    printf(" united %zu gap %llu\n", tree.count, (unsigned long long)tree_largest_gap(&tree));
    tree_free(&tree);
    tree_free(&other);

    random_seed(&random, 5);
    for (size_t place = 0; place < 500; place++)
        numbers[place] = (uint32_t)random_below(&random, 1000);
    sort_select(numbers, 500, sizeof(numbers[0]), 250, by_number);
    printf("selected %u", numbers[250]);
    sort_shell(numbers, 500, sizeof(numbers[0]), by_number);
    printf(" %u, inversions %llu\n", numbers[250],
           (unsigned long long)sort_count_inversions(inversions, 6));

    bytes_init(&packed);
    bytes_init(&unpacked);
    for (size_t place = 0; place < 200; place++)
        values[place] = 1 + random_below(&random, 1 + place * place);
    gamma_pack(values, 200, &packed);
    printf("gamma %zu %d,", packed.length,
           gamma_unpack(packed.data, packed.length, back, 200) &&
               memcmp(values, back, sizeof(values)) == 0);
    packed.length = 0;
    rice_pack(values, 200, rice_best_bits(values, 200), &packed);
    printf(" rice %zu %d\n", packed.length,
           rice_unpack(packed.data, packed.length, rice_best_bits(values, 200), back, 200) &&
               memcmp(values, back, sizeof(values)) == 0);
    bytes_free(&packed);
    bytes_free(&unpacked);
    test_packer("blocks", block_sort, block_sort_back, (const uint8_t *)poem, sizeof(poem));
    test_packer("delta", delta_pack, delta_unpack, (const uint8_t *)poem, sizeof(poem));

    text_clear(&text);
    lexer_format("fn f(a){if a<2{return a;}return f(a-1);}print f(3);", &text);
    printf("%sbalanced %d %d\n", text.bytes, lexer_is_balanced(text.bytes),
           lexer_is_balanced("( { ) }"));
    hash_init(&hash);
    lexer_count_names(text.bytes, &hash);
    text_clear(&text);
    hash_print(&hash, &text);
    diff_print_columns("a\nb\nc\n", "a\nx\nc\n", 6, &text);
    diff_common("human", "chimpanzee", &text);
    printf("%s\n", text.bytes);
    hash_free(&hash);

    sha1_of("abc", 3, hex);
    printf("sha1 %s internet %04x\n", hex, internet_sum_of("irqlab", 6));
    calendar_age(&from, &to, &date);
    printf("age %d %d %d, working %lld, julian %lld, moon %d", date.year, date.month, date.day,
           (long long)calendar_working_days(&from, &to), (long long)calendar_julian_day(&to),
           calendar_moon_age(&to));
    calendar_nth_weekday(2026, 11, 3, -1, &date);
    printf(", last Thursday %d\n", date.day);

    for (size_t place = 0; place < 50; place++) {
        x[place] = (double)place;
        y[place] = 3 + 0.5 * (double)place + (place % 2 == 0 ? 0.25 : -0.25);
        reservoir_add(&random, kept, 10, &seen, y[place]);
    }
    fit_line(x, y, 50, &fit);
    bootstrap_mean(&random, y, 50, 400, 0.95, &low, &high);
    printf("line %.2f %.2f %.2f, mean inside %d, kept %d of %zu, coins %.4f", fit.slope,
           fit.intercept, fit.deviation, low < 15.25 && high > 15.25, kept[9] >= 3, seen,
           binomial(10, 5, 0.5));
    printf(", walk %zu", random_walk(&random, 10000, &farthest));
    printf(" to %lld", (long long)farthest);
    printf(" pi %d\n", fabs(random_pi(&random, 100000) - 3.14159) < 0.03);
    text_free(&text);
}

int main(void)
{
    test_strings();
    test_hash();
    test_tree();
    test_heap();
    test_matrix();
    test_regex();
    test_language();
    test_bignum();
    test_calendar();
    test_diff();
    test_digest();
    test_graph();
    test_compression();
    test_json();
    test_random();
    test_more();
    return 0;
}
