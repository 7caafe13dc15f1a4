/*
 * A compiler of the small language to byte code in one pass, and a machine with a stack that
 * executes it. All values are whole numbers; a string can only be printed.
 */
#include <stdlib.h>
#include <string.h>

#include "kit.h"

#define STACK_MAX 1024
#define CALLS_MAX 256
#define NAMES_MAX 256
#define LOCALS_MAX 32

enum operation {
    OP_NUMBER,  /* push the number that follows */
    OP_LOAD,    /* push variable N of the function, OP_GLOBAL of the program */
    OP_GLOBAL,
    OP_STORE,   /* pop into it */
    OP_STORE_GLOBAL,
    OP_ADD,
    OP_SUBTRACT,
    OP_MULTIPLY,
    OP_DIVIDE,
    OP_MODULO,
    OP_NEGATE,
    OP_NOT,
    OP_EQUAL,
    OP_LESS,
    OP_MORE,
    OP_JUMP,    /* to the place that follows */
    OP_JUMP_IF_ZERO,
    OP_CALL,    /* function N */
    OP_RETURN,
    OP_POP,
    OP_PRINT,
    OP_PRINT_STRING, /* text N */
    OP_STOP,
};

struct variable {
    const char *name;
    size_t length;
};

struct function {
    struct variable name;
    size_t entry;
    unsigned parameters;
};

struct program {
    int64_t *code;
    size_t count;
    size_t capacity;
    struct function functions[NAMES_MAX];
    unsigned function_count;
    struct text strings[NAMES_MAX];
    unsigned string_count;
};

struct compiler {
    struct program *program;
    struct lexer lexer;
    struct token token;
    const char *error;
    struct variable globals[NAMES_MAX];
    unsigned global_count;
    struct variable locals[LOCALS_MAX];
    unsigned local_count;
    bool in_function;
    unsigned depth;
};

static void compile_expression(struct compiler *compiler);
static void compile_statement(struct compiler *compiler);

static void fail(struct compiler *compiler, const char *error)
{
    if (compiler->error == NULL)
        compiler->error = error;
}

static void advance(struct compiler *compiler)
{
    compiler->token = lexer_next(&compiler->lexer);
    if (compiler->token.kind == TOKEN_ERROR)
        fail(compiler, compiler->lexer.error);
}

static bool accept(struct compiler *compiler, enum token_kind kind)
{
    if (compiler->token.kind != kind)
        return false;
    advance(compiler);
    return true;
}

static void expect(struct compiler *compiler, enum token_kind kind, const char *error)
{
    if (!accept(compiler, kind))
        fail(compiler, error);
}

static size_t emit(struct compiler *compiler, int64_t word)
{
    struct program *program = compiler->program;

    if (program->count == program->capacity) {
        size_t capacity = program->capacity == 0 ? 256 : program->capacity * 2;
        int64_t *code = realloc(program->code, capacity * sizeof(*code));

        if (code == NULL) {
            fail(compiler, "no memory");
            return 0;
        }
        program->code = code;
        program->capacity = capacity;
    }
    program->code[program->count] = word;
    return program->count++;
}

static size_t emit_two(struct compiler *compiler, enum operation operation, int64_t word)
{
    emit(compiler, operation);
    return emit(compiler, word);
}

/* Lets a jump lead to what is emitted next. */
static void land(struct compiler *compiler, size_t jump)
{
    if (compiler->error == NULL)
        compiler->program->code[jump] = (int64_t)compiler->program->count;
}

static bool is_named(const struct variable *variable, const struct token *token)
{
    return variable->length == token->length &&
           memcmp(variable->name, token->start, token->length) == 0;
}

static int find(const struct variable *variables, unsigned count, const struct token *token)
{
    while (count-- > 0) {
        if (is_named(&variables[count], token))
            return (int)count;
    }
    return -1;
}

static unsigned declare(struct compiler *compiler, const struct token *token)
{
    struct variable *list = compiler->in_function ? compiler->locals : compiler->globals;
    unsigned *count =
        compiler->in_function ? &compiler->local_count : &compiler->global_count;
    int known = find(list, *count, token);

    if (known >= 0)
        return (unsigned)known;
    if (*count == (compiler->in_function ? LOCALS_MAX : NAMES_MAX)) {
        fail(compiler, "too many names");
        return 0;
    }
    list[*count].name = token->start;
    list[*count].length = token->length;
    return (*count)++;
}

/* Emits the access to a variable: of the function, else of the program. */
static void access(struct compiler *compiler, const struct token *token, bool stores)
{
    int local = compiler->in_function ? find(compiler->locals, compiler->local_count, token) : -1;
    int global = find(compiler->globals, compiler->global_count, token);

    if (local >= 0)
        emit_two(compiler, stores ? OP_STORE : OP_LOAD, local);
    else if (global >= 0)
        emit_two(compiler, stores ? OP_STORE_GLOBAL : OP_GLOBAL, global);
    else
        fail(compiler, "a name is not known");
}

static void compile_call(struct compiler *compiler, const struct token *name)
{
    struct program *program = compiler->program;
    unsigned arguments = 0;

    if (compiler->token.kind != TOKEN_CLOSE) {
        do {
            compile_expression(compiler);
            arguments++;
        } while (accept(compiler, TOKEN_COMMA));
    }
    expect(compiler, TOKEN_CLOSE, "arguments are not closed");
    for (unsigned number = 0; number < program->function_count; number++) {
        if (!is_named(&program->functions[number].name, name))
            continue;
        if (program->functions[number].parameters != arguments)
            fail(compiler, "a call has the wrong number of arguments");
        emit_two(compiler, OP_CALL, number);
        return;
    }
    fail(compiler, "a function is not known");
}

static void compile_primary(struct compiler *compiler)
{
    struct token token = compiler->token;

    if (++compiler->depth > 200)
        fail(compiler, "an expression is too deep");
    if (compiler->error != NULL)
        return;
    advance(compiler);
    switch (token.kind) {
    case TOKEN_NUMBER:
        emit_two(compiler, OP_NUMBER, token.number);
        break;
    case TOKEN_TRUE:
    case TOKEN_FALSE:
        emit_two(compiler, OP_NUMBER, token.kind == TOKEN_TRUE);
        break;
    case TOKEN_OPEN:
        compile_expression(compiler);
        expect(compiler, TOKEN_CLOSE, "a bracket is not closed");
        break;
    case TOKEN_MINUS:
        compile_primary(compiler);
        emit(compiler, OP_NEGATE);
        break;
    case TOKEN_NOT:
        compile_primary(compiler);
        emit(compiler, OP_NOT);
        break;
    case TOKEN_NAME:
        if (accept(compiler, TOKEN_OPEN))
            compile_call(compiler, &token);
        else
            access(compiler, &token, false);
        break;
    default:
        fail(compiler, "an expression is expected");
    }
    compiler->depth--;
}

/* How tightly an operator binds; 0 for none. */
static int binding(enum token_kind kind)
{
    switch (kind) {
    case TOKEN_OR:
        return 1;
    case TOKEN_AND:
        return 2;
    case TOKEN_EQUAL:
    case TOKEN_UNEQUAL:
        return 3;
    case TOKEN_LESS:
    case TOKEN_LESS_EQUAL:
    case TOKEN_MORE:
    case TOKEN_MORE_EQUAL:
        return 4;
    case TOKEN_PLUS:
    case TOKEN_MINUS:
        return 5;
    case TOKEN_STAR:
    case TOKEN_SLASH:
    case TOKEN_PERCENT:
        return 6;
    default:
        return 0;
    }
}

static void emit_operator(struct compiler *compiler, enum token_kind kind)
{
    switch (kind) {
    case TOKEN_EQUAL: emit(compiler, OP_EQUAL); break;
    case TOKEN_UNEQUAL: emit(compiler, OP_EQUAL); emit(compiler, OP_NOT); break;
    case TOKEN_LESS: emit(compiler, OP_LESS); break;
    case TOKEN_MORE_EQUAL: emit(compiler, OP_LESS); emit(compiler, OP_NOT); break;
    case TOKEN_MORE: emit(compiler, OP_MORE); break;
    case TOKEN_LESS_EQUAL: emit(compiler, OP_MORE); emit(compiler, OP_NOT); break;
    case TOKEN_PLUS: emit(compiler, OP_ADD); break;
    case TOKEN_MINUS: emit(compiler, OP_SUBTRACT); break;
    case TOKEN_STAR: emit(compiler, OP_MULTIPLY); break;
    case TOKEN_SLASH: emit(compiler, OP_DIVIDE); break;
    case TOKEN_PERCENT: emit(compiler, OP_MODULO); break;
    default: break;
    }
}

/* `and` and `or` leave 0 or 1, and skip their right side if the left one decides. */
static void compile_binary(struct compiler *compiler, int least)
{
    compile_primary(compiler);
    while (compiler->error == NULL && binding(compiler->token.kind) >= least) {
        enum token_kind kind = compiler->token.kind;
        size_t decided, end;

        advance(compiler);
        if (kind != TOKEN_AND && kind != TOKEN_OR) {
            compile_binary(compiler, binding(kind) + 1);
            emit_operator(compiler, kind);
            continue;
        }
        if (kind == TOKEN_OR)
            emit(compiler, OP_NOT);
        decided = emit_two(compiler, OP_JUMP_IF_ZERO, 0);
        compile_binary(compiler, binding(kind) + 1);
        emit(compiler, OP_NOT);
        emit(compiler, OP_NOT);
        end = emit_two(compiler, OP_JUMP, 0);
        land(compiler, decided);
        emit_two(compiler, OP_NUMBER, kind == TOKEN_OR);
        land(compiler, end);
    }
}

static void compile_expression(struct compiler *compiler)
{
    compile_binary(compiler, 1);
}

static void compile_block(struct compiler *compiler)
{
    expect(compiler, TOKEN_OPEN_BRACE, "a block is expected");
    while (compiler->error == NULL && !accept(compiler, TOKEN_CLOSE_BRACE)) {
        if (compiler->token.kind == TOKEN_END)
            fail(compiler, "a block is not closed");
        compile_statement(compiler);
    }
}

static void compile_function(struct compiler *compiler)
{
    struct program *program = compiler->program;
    struct token name = compiler->token;
    struct function *function = &program->functions[program->function_count];
    size_t over;

    expect(compiler, TOKEN_NAME, "a function has no name");
    if (compiler->in_function || program->function_count == NAMES_MAX) {
        fail(compiler, "functions are not in functions, nor too many");
        return;
    }
    over = emit_two(compiler, OP_JUMP, 0);
    memset(function, 0, sizeof(*function));
    function->name.name = name.start;
    function->name.length = name.length;
    function->entry = program->count;
    program->function_count++;
    compiler->in_function = true;
    compiler->local_count = 0;
    expect(compiler, TOKEN_OPEN, "a function has no parameters");
    while (compiler->error == NULL && !accept(compiler, TOKEN_CLOSE)) {
        declare(compiler, &compiler->token);
        function->parameters++;
        expect(compiler, TOKEN_NAME, "a parameter has no name");
        if (compiler->token.kind != TOKEN_CLOSE)
            expect(compiler, TOKEN_COMMA, "parameters have no comma");
    }
    compile_block(compiler);
    emit_two(compiler, OP_NUMBER, 0);
    emit(compiler, OP_RETURN);
    compiler->in_function = false;
    land(compiler, over);
}

static void compile_print(struct compiler *compiler)
{
    struct program *program = compiler->program;

    if (compiler->token.kind != TOKEN_STRING) {
        compile_expression(compiler);
        emit(compiler, OP_PRINT);
    } else if (program->string_count == NAMES_MAX) {
        fail(compiler, "too many strings");
    } else {
        text_init(&program->strings[program->string_count]);
        token_text(&compiler->token, &program->strings[program->string_count]);
        emit_two(compiler, OP_PRINT_STRING, program->string_count++);
        advance(compiler);
    }
    expect(compiler, TOKEN_SEMICOLON, "a statement has no semicolon");
}

static void compile_if(struct compiler *compiler)
{
    size_t no, end;

    compile_expression(compiler);
    no = emit_two(compiler, OP_JUMP_IF_ZERO, 0);
    compile_block(compiler);
    if (!accept(compiler, TOKEN_ELSE)) {
        land(compiler, no);
        return;
    }
    end = emit_two(compiler, OP_JUMP, 0);
    land(compiler, no);
    if (accept(compiler, TOKEN_IF))
        compile_if(compiler);
    else
        compile_block(compiler);
    land(compiler, end);
}

static void compile_while(struct compiler *compiler)
{
    int64_t start = (int64_t)compiler->program->count;
    size_t out;

    compile_expression(compiler);
    out = emit_two(compiler, OP_JUMP_IF_ZERO, 0);
    compile_block(compiler);
    emit_two(compiler, OP_JUMP, start);
    land(compiler, out);
}

static void compile_statement(struct compiler *compiler)
{
    struct token name;

    if (accept(compiler, TOKEN_FUNCTION)) {
        compile_function(compiler);
    } else if (accept(compiler, TOKEN_IF)) {
        compile_if(compiler);
    } else if (accept(compiler, TOKEN_WHILE)) {
        compile_while(compiler);
    } else if (accept(compiler, TOKEN_PRINT)) {
        compile_print(compiler);
    } else if (accept(compiler, TOKEN_RETURN)) {
        if (!compiler->in_function)
            fail(compiler, "only a function returns");
        compile_expression(compiler);
        emit(compiler, OP_RETURN);
        expect(compiler, TOKEN_SEMICOLON, "a statement has no semicolon");
    } else {
        bool is_new = accept(compiler, TOKEN_LET);

        name = compiler->token;
        expect(compiler, TOKEN_NAME, "a statement is expected");
        if (!is_new && accept(compiler, TOKEN_OPEN)) {
            compile_call(compiler, &name);
            emit(compiler, OP_POP);
        } else {
            expect(compiler, TOKEN_ASSIGN, "a variable gets no value");
            compile_expression(compiler);
            if (is_new)
                declare(compiler, &name);
            access(compiler, &name, true);
        }
        expect(compiler, TOKEN_SEMICOLON, "a statement has no semicolon");
    }
}

struct call {
    const int64_t *back;
    size_t base;
};

struct machine {
    const struct program *program;
    struct text *output;
    int64_t stack[STACK_MAX + LOCALS_MAX];
    size_t used;
    int64_t globals[NAMES_MAX];
    struct call calls[CALLS_MAX];
    size_t call_count;
};

/* Executes an operation of two numbers; false if it has no result. */
static bool calculate(enum operation operation, int64_t one, int64_t other, int64_t *result)
{
    switch (operation) {
    case OP_ADD: return !__builtin_add_overflow(one, other, result);
    case OP_SUBTRACT: return !__builtin_sub_overflow(one, other, result);
    case OP_MULTIPLY: return !__builtin_mul_overflow(one, other, result);
    case OP_EQUAL: *result = one == other; return true;
    case OP_LESS: *result = one < other; return true;
    case OP_MORE: *result = one > other; return true;
    default:
        if (other == 0 || (one == INT64_MIN && other == -1))
            return false;
        *result = operation == OP_DIVIDE ? one / other : one % other;
        return true;
    }
}

static const int64_t *call(struct machine *machine, const int64_t *back, size_t number)
{
    const struct function *function = &machine->program->functions[number];
    struct call *record = &machine->calls[machine->call_count++];

    record->back = back;
    record->base = machine->used - function->parameters;
    /* Room for all of its variables, which are zero at first. */
    memset(machine->stack + machine->used, 0, LOCALS_MAX * sizeof(int64_t));
    machine->used = record->base + LOCALS_MAX;
    return machine->program->code + function->entry;
}

static const char *execute(struct machine *machine, uint64_t steps_max)
{
    const int64_t *at = machine->program->code;
    int64_t *stack = machine->stack;

    for (uint64_t step = 0; step < steps_max; step++) {
        enum operation operation = (enum operation)*at++;
        size_t base = machine->call_count == 0 ? 0 : machine->calls[machine->call_count - 1].base;
        int64_t value;

        if (machine->used + 1 >= STACK_MAX)
            return "the stack is full";
        switch (operation) {
        case OP_NUMBER: stack[machine->used++] = *at++; break;
        case OP_LOAD: stack[machine->used++] = stack[base + (size_t)*at++]; break;
        case OP_GLOBAL: stack[machine->used++] = machine->globals[*at++]; break;
        case OP_STORE: stack[base + (size_t)*at++] = stack[--machine->used]; break;
        case OP_STORE_GLOBAL: machine->globals[*at++] = stack[--machine->used]; break;
        case OP_NEGATE: stack[machine->used - 1] = -stack[machine->used - 1]; break;
        case OP_NOT: stack[machine->used - 1] = stack[machine->used - 1] == 0; break;
        case OP_JUMP: at = machine->program->code + *at; break;
        case OP_JUMP_IF_ZERO:
            value = *at++;
            if (stack[--machine->used] == 0)
                at = machine->program->code + value;
            break;
        case OP_CALL:
            if (machine->call_count == CALLS_MAX)
                return "calls are too deep";
            value = *at++;
            at = call(machine, at, (size_t)value);
            break;
        case OP_RETURN:
            value = stack[machine->used - 1];
            machine->call_count--;
            machine->used = base;
            at = machine->calls[machine->call_count].back;
            stack[machine->used++] = value;
            break;
        case OP_POP: machine->used--; break;
        case OP_PRINT:
            text_add_format(machine->output, "%lld\n", (long long)stack[--machine->used]);
            break;
        case OP_PRINT_STRING:
            text_add_format(machine->output, "%s\n", machine->program->strings[*at++].bytes);
            break;
        case OP_STOP: return NULL;
        default:
            machine->used--;
            if (!calculate(operation, stack[machine->used - 1], stack[machine->used], &value))
                return "a result is not a number";
            stack[machine->used - 1] = value;
        }
    }
    return "the program takes too many steps";
}

bool interp_run(const char *source, struct text *output, uint64_t steps_max, const char **error)
{
    struct program *program = calloc(1, sizeof(*program));
    struct compiler *compiler = calloc(1, sizeof(*compiler));
    struct machine *machine = calloc(1, sizeof(*machine));

    *error = "no memory";
    if (program != NULL && compiler != NULL && machine != NULL) {
        compiler->program = program;
        lexer_init(&compiler->lexer, source);
        advance(compiler);
        while (compiler->error == NULL && compiler->token.kind != TOKEN_END)
            compile_statement(compiler);
        emit(compiler, OP_STOP);
        machine->program = program;
        machine->output = output;
        *error = compiler->error != NULL ? compiler->error : execute(machine, steps_max);
        for (unsigned number = 0; number < program->string_count; number++)
            text_free(&program->strings[number]);
        free(program->code);
    }
    free(program);
    free(compiler);
    free(machine);
    return *error == NULL;
}
