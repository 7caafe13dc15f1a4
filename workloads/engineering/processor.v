// A processor of 32 bits with a pipeline of five stages, a direct-mapped cache of instructions and one of
// data, and a multiplier that takes several cycles.
//
// Instructions: op[31:28] rd[27:24] rs[23:20] rt[19:16] immediate[15:0]
//   0 nop                     6 load  rd = memory[rs + imm]
//   1 add  rd = rs + rt       7 store memory[rs + imm] = rt
//   2 sub  rd = rs - rt       8 beq   if rs == rt: pc += imm
//   3 and  rd = rs & rt       9 blt   if rs < rt: pc += imm
//   4 addi rd = rs + imm      a jump  pc = imm
//   5 mul  rd = rs * rt       b out   rs to the port
//                             f halt

`timescale 1ns / 1ps

// A direct-mapped cache of lines of four words, written through.
module cache #(
    parameter LINES = 16
) (
    input wire clock,
    input wire reset,
    // From the processor.
    input wire [31:0] address,
    input wire read,
    input wire write,
    input wire [31:0] store_data,
    output wire [31:0] load_data,
    output wire ready,
    // To the memory.
    output reg [31:0] memory_address,
    output reg memory_read,
    output reg memory_write,
    output reg [31:0] memory_store_data,
    input wire [31:0] memory_load_data,
    input wire memory_ready,
    // Counts.
    output reg [31:0] hits,
    output reg [31:0] misses
);
    localparam INDEX_BITS = $clog2(LINES);
    localparam TAG_BITS = 32 - INDEX_BITS - 2;

    reg [31:0] data[0:LINES*4-1];
    reg [TAG_BITS-1:0] tags[0:LINES-1];
    reg valid[0:LINES-1];

    wire [1:0] word = address[1:0];
    wire [INDEX_BITS-1:0] index = address[INDEX_BITS+1:2];
    wire [TAG_BITS-1:0] tag = address[31:INDEX_BITS+2];
    wire hit = valid[index] && tags[index] == tag;

    localparam IDLE = 2'd0, FILL = 2'd1, WRITE = 2'd2, DONE = 2'd3;
    reg [1:0] state;
    reg [1:0] fill_word;
    // The processor may branch elsewhere while a line is filled.
    reg [31:0] fill_address;
    wire [INDEX_BITS-1:0] fill_index = fill_address[INDEX_BITS+1:2];
    integer line;

    assign load_data = data[{index, word}];
    assign ready = (!read && !write) || (state == IDLE && read && hit) || state == DONE;

    always @(posedge clock) begin
        if (reset) begin
            state <= IDLE;
            memory_read <= 1'b0;
            memory_write <= 1'b0;
            memory_address <= 32'd0;
            memory_store_data <= 32'd0;
            fill_word <= 2'd0;
            fill_address <= 32'd0;
            hits <= 32'd0;
            misses <= 32'd0;
            for (line = 0; line < LINES; line = line + 1) valid[line] <= 1'b0;
        end else begin
            case (state)
                IDLE:
                if (write) begin
                    memory_address <= address;
                    memory_store_data <= store_data;
                    memory_write <= 1'b1;
                    state <= WRITE;
                    if (hit) data[{index, word}] <= store_data;
                end else if (read && hit) begin
                    hits <= hits + 32'd1;
                end else if (read) begin
                    misses <= misses + 32'd1;
                    memory_address <= {address[31:2], 2'd0};
                    memory_read <= 1'b1;
                    fill_word <= 2'd0;
                    fill_address <= address;
                    valid[index] <= 1'b0;
                    state <= FILL;
                end
                FILL:
                if (memory_ready) begin
                    data[{fill_index, fill_word}] <= memory_load_data;
                    fill_word <= fill_word + 2'd1;
                    memory_address <= memory_address + 32'd1;
                    if (fill_word == 2'd3) begin
                        tags[fill_index] <= fill_address[31:INDEX_BITS+2];
                        valid[fill_index] <= 1'b1;
                        memory_read <= 1'b0;
                        state <= IDLE;
                    end
                end
                WRITE:
                if (memory_ready) begin
                    memory_write <= 1'b0;
                    state <= DONE;
                end
                DONE: state <= IDLE;
            endcase
        end
    end
endmodule

// The multiplier: two bits of a factor in each cycle.
module multiplier (
    input wire clock,
    input wire reset,
    input wire start,
    input wire [31:0] one,
    input wire [31:0] other,
    output reg [31:0] product,
    output reg done
);
    reg [31:0] shifted;
    reg [31:0] rest;
    reg busy;

    wire [31:0] low = rest[0] ? shifted : 32'd0;
    wire [31:0] high = rest[1] ? {shifted[30:0], 1'b0} : 32'd0;

    always @(posedge clock) begin
        if (reset) begin
            busy <= 1'b0;
            done <= 1'b0;
            product <= 32'd0;
            shifted <= 32'd0;
            rest <= 32'd0;
        end else if (start && !busy && !done) begin
            busy <= 1'b1;
            product <= 32'd0;
            shifted <= one;
            rest <= other;
        end else if (busy) begin
            product <= product + low + high;
            shifted <= {shifted[29:0], 2'd0};
            rest <= {2'd0, rest[31:2]};
            if (rest[31:2] == 30'd0) begin
                busy <= 1'b0;
                done <= 1'b1;
            end
        end else begin
            done <= 1'b0;
        end
    end
endmodule

module processor (
    input wire clock,
    input wire reset,
    // Memory of instructions and of data, each with its cache.
    output wire [31:0] code_address,
    output wire code_read,
    input wire [31:0] code_data,
    input wire code_ready,
    output wire [31:0] data_address,
    output wire data_read,
    output wire data_write,
    output wire [31:0] data_store,
    input wire [31:0] data_load,
    input wire data_ready,
    // The port, and the end.
    output reg [31:0] port,
    output reg port_valid,
    output reg halted,
    output reg [31:0] retired
);
    reg [31:0] registers[0:15];
    integer number;

    // Fetch to decode.
    reg [31:0] pc;
    reg [31:0] fd_word, fd_pc;
    reg fd_valid;
    // Decode to execute.
    reg [3:0] dx_op, dx_rd;
    reg [31:0] dx_one, dx_other, dx_immediate, dx_pc;
    reg dx_valid;
    // Execute to memory.
    reg [3:0] xm_op, xm_rd;
    reg [31:0] xm_result, xm_store;
    reg xm_valid;
    // Memory to write-back.
    reg [3:0] mw_op, mw_rd;
    reg [31:0] mw_result;
    reg mw_valid;

    localparam OP_ADD = 4'h1, OP_SUB = 4'h2, OP_AND = 4'h3, OP_ADDI = 4'h4, OP_MUL = 4'h5;
    localparam OP_LOAD = 4'h6, OP_STORE = 4'h7, OP_BEQ = 4'h8, OP_BLT = 4'h9, OP_JUMP = 4'ha;
    localparam OP_OUT = 4'hb, OP_HALT = 4'hf;

    function writes(input [3:0] op);
        writes = op >= OP_ADD && op <= OP_LOAD;
    endfunction

    // Decode: operands, by forwarding where a later stage has a newer value.
    wire [3:0] op = fd_word[31:28];
    wire [3:0] rd = fd_word[27:24];
    wire [3:0] rs = fd_word[23:20];
    wire [3:0] rt = fd_word[19:16];
    wire [31:0] immediate = {{16{fd_word[15]}}, fd_word[15:0]};

    wire [31:0] x_result;
    wire x_writes = dx_valid && writes(dx_op) && dx_rd != 4'd0;
    wire m_writes = xm_valid && writes(xm_op) && xm_rd != 4'd0;
    wire w_writes = mw_valid && writes(mw_op) && mw_rd != 4'd0;
    wire [31:0] m_result = xm_op == OP_LOAD ? data_load : xm_result;

    function [31:0] operand(input [3:0] register, input [31:0] stored);
        if (register == 4'd0) operand = 32'd0;
        else if (x_writes && dx_rd == register) operand = x_result;
        else if (m_writes && xm_rd == register) operand = m_result;
        else if (w_writes && mw_rd == register) operand = mw_result;
        else operand = stored;
    endfunction

    // What is loaded comes a stage too late for the next instruction.
    wire waits_for_load =
        fd_valid && dx_valid && dx_op == OP_LOAD && dx_rd != 4'd0 && (dx_rd == rs || dx_rd == rt);

    // Execute.
    wire multiplies = dx_valid && dx_op == OP_MUL;
    wire [31:0] product;
    wire product_done;
    multiplier multiplier (
        .clock(clock),
        .reset(reset),
        .start(multiplies),
        .one(dx_one),
        .other(dx_other),
        .product(product),
        .done(product_done)
    );
    assign x_result = dx_op == OP_ADD ? dx_one + dx_other :
        dx_op == OP_SUB ? dx_one - dx_other :
        dx_op == OP_AND ? (dx_one & dx_other) :
        dx_op == OP_MUL ? product : dx_one + dx_immediate;
    wire branches = dx_valid && (dx_op == OP_JUMP || (dx_op == OP_BEQ && dx_one == dx_other) ||
        (dx_op == OP_BLT && $signed(dx_one) < $signed(dx_other)));
    wire [31:0] target = dx_op == OP_JUMP ? dx_immediate : dx_pc + dx_immediate;

    // Memory.
    assign data_address = xm_result;
    assign data_read = xm_valid && xm_op == OP_LOAD;
    assign data_write = xm_valid && xm_op == OP_STORE;
    assign data_store = xm_store;

    assign code_address = pc;
    assign code_read = !halted;

    wire holds = !data_ready || (multiplies && !product_done);

    always @(posedge clock) begin
        port_valid <= 1'b0;
        if (reset) begin
            pc <= 32'd0;
            fd_valid <= 1'b0;
            dx_valid <= 1'b0;
            xm_valid <= 1'b0;
            mw_valid <= 1'b0;
            fd_word <= 32'd0;
            fd_pc <= 32'd0;
            dx_op <= 4'd0;
            xm_op <= 4'd0;
            mw_op <= 4'd0;
            halted <= 1'b0;
            port <= 32'd0;
            retired <= 32'd0;
            for (number = 0; number < 16; number = number + 1) registers[number] <= 32'd0;
        end else if (!halted && !holds) begin
            // Write-back.
            if (mw_valid) begin
                retired <= retired + 32'd1;
                if (w_writes) registers[mw_rd] <= mw_result;
                if (mw_op == OP_OUT) begin
                    port <= mw_result;
                    port_valid <= 1'b1;
                end
                if (mw_op == OP_HALT) halted <= 1'b1;
            end
            // Memory to write-back.
            mw_valid <= xm_valid;
            mw_op <= xm_op;
            mw_rd <= xm_rd;
            mw_result <= m_result;
            // Execute to memory.
            xm_valid <= dx_valid;
            xm_op <= dx_op;
            xm_rd <= dx_rd;
            xm_result <= dx_op == OP_OUT ? dx_one : x_result;
            xm_store <= dx_other;
            // Decode to execute.
            dx_valid <= fd_valid && !waits_for_load && !branches;
            if (!waits_for_load) begin
                dx_op <= op;
                dx_rd <= rd;
                dx_one <= operand(rs, registers[rs]);
                dx_other <= operand(rt, registers[rt]);
                dx_immediate <= immediate;
                dx_pc <= fd_pc;
            end
            // Fetch to decode.
            if (branches) begin
                pc <= target;
                fd_valid <= 1'b0;
            end else if (!waits_for_load) begin
                fd_valid <= code_ready;
                fd_word <= code_data;
                fd_pc <= pc;
                if (code_ready) pc <= pc + 32'd1;
            end
        end
    end
endmodule
