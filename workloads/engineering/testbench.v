// The processor with its memory executes a program that finds primes; a model that executes the same
// program one instruction after the other must end in the same state.

`timescale 1ns / 1ps

// Memory that answers some cycles after it was asked.
module memory #(
    parameter WORDS = 4096,
    parameter LATENCY = 4
) (
    input wire clock,
    input wire reset,
    input wire [31:0] address,
    input wire read,
    input wire write,
    input wire [31:0] store_data,
    output wire [31:0] load_data,
    output wire ready
);
    reg [31:0] words[0:WORDS-1];
    reg [3:0] waited;

    assign ready = (read || write) && waited == LATENCY;
    assign load_data = words[address[11:0]];

    always @(posedge clock) begin
        if (reset) waited <= 4'd0;
        else if (read || write) begin
            waited <= waited == LATENCY ? 4'd0 : waited + 4'd1;
            if (write && waited == LATENCY) words[address[11:0]] <= store_data;
        end else waited <= 4'd0;
    end
endmodule

module testbench;
    reg clock = 1'b0, reset = 1'b1;
    always #5 clock = !clock;

    wire [31:0] code_address, code_data, data_address, data_store, data_load, port, retired;
    wire code_read, code_ready, data_read, data_write, data_ready, port_valid, halted;
    wire [31:0] cm_address, cm_store, cm_load, dm_address, dm_store, dm_load;
    wire cm_read, cm_write, cm_ready, dm_read, dm_write, dm_ready;
    wire [31:0] code_hits, code_misses, data_hits, data_misses;

    processor processor (
        .clock(clock), .reset(reset),
        .code_address(code_address), .code_read(code_read), .code_data(code_data),
        .code_ready(code_ready),
        .data_address(data_address), .data_read(data_read), .data_write(data_write),
        .data_store(data_store), .data_load(data_load), .data_ready(data_ready),
        .port(port), .port_valid(port_valid), .halted(halted), .retired(retired)
    );
    cache #(.LINES(8)) code_cache (
        .clock(clock), .reset(reset),
        .address(code_address), .read(code_read), .write(1'b0), .store_data(32'd0),
        .load_data(code_data), .ready(code_ready),
        .memory_address(cm_address), .memory_read(cm_read), .memory_write(cm_write),
        .memory_store_data(cm_store), .memory_load_data(cm_load), .memory_ready(cm_ready),
        .hits(code_hits), .misses(code_misses)
    );
    cache #(.LINES(16)) data_cache (
        .clock(clock), .reset(reset),
        .address(data_address), .read(data_read), .write(data_write), .store_data(data_store),
        .load_data(data_load), .ready(data_ready),
        .memory_address(dm_address), .memory_read(dm_read), .memory_write(dm_write),
        .memory_store_data(dm_store), .memory_load_data(dm_load), .memory_ready(dm_ready),
        .hits(data_hits), .misses(data_misses)
    );
    memory code_memory (
        .clock(clock), .reset(reset), .address(cm_address), .read(cm_read), .write(cm_write),
        .store_data(cm_store), .load_data(cm_load), .ready(cm_ready)
    );
    memory data_memory (
        .clock(clock), .reset(reset), .address(dm_address), .read(dm_read), .write(dm_write),
        .store_data(dm_store), .load_data(dm_load), .ready(dm_ready)
    );

    // The program: finds so many primes by division through subtraction, keeps them, and adds up their
    // squares. Registers: 1 candidate, 2 count, 3 wanted, 4 place, 5 divisor, 6 rest, 7 sum, 8 square.
    integer wanted, at;
    task emit(input [3:0] op, input [3:0] rd, input [3:0] rs, input [3:0] rt, input [15:0] imm);
        begin
            code_memory.words[at] = {op, rd, rs, rt, imm};
            at = at + 1;
        end
    endtask

    initial begin
        for (at = 0; at < 4096; at = at + 1) begin
            code_memory.words[at] = 32'd0;
            data_memory.words[at] = 32'd0;
        end
        if (!$value$plusargs("primes=%d", wanted)) wanted = 10;
        at = 0;
        emit(4'h4, 1, 0, 0, 2);          // 0: candidate = 2
        emit(4'h4, 3, 0, 0, wanted);     // 1: wanted
        emit(4'h4, 4, 0, 0, 0);          // 2: next candidate: place = 0
        emit(4'h8, 0, 4, 2, 9);          // 3: if place == count: prime, at 12
        emit(4'h6, 5, 4, 0, 100);        // 4: divisor = primes[place]
        emit(4'h4, 6, 1, 0, 0);          // 5: rest = candidate
        emit(4'h9, 0, 6, 5, 3);          // 6: if rest < divisor: at 9
        emit(4'h2, 6, 6, 5, 0);          // 7: rest -= divisor
        emit(4'ha, 0, 0, 0, 6);          // 8: at 6
        emit(4'h8, 0, 6, 0, 9);          // 9: if rest == 0: not a prime, at 18
        emit(4'h4, 4, 4, 0, 1);          // 10: place += 1
        emit(4'ha, 0, 0, 0, 3);          // 11: at 3
        emit(4'h7, 0, 2, 1, 100);        // 12: primes[count] = candidate
        emit(4'h4, 2, 2, 0, 1);          // 13: count += 1
        emit(4'h5, 8, 1, 1, 0);          // 14: square
        emit(4'h1, 7, 7, 8, 0);          // 15: sum += square
        emit(4'hb, 0, 1, 0, 0);          // 16: out candidate
        emit(4'h8, 0, 2, 3, 3);          // 17: if count == wanted: at 20
        emit(4'h4, 1, 1, 0, 1);          // 18: candidate += 1
        emit(4'ha, 0, 0, 0, 2);          // 19: at 2
        emit(4'hb, 0, 7, 0, 0);          // 20: out sum
        emit(4'hf, 0, 0, 0, 0);          // 21: halt
        #100 reset = 1'b0;
    end

    // The model.
    reg [31:0] m_registers[0:15], m_words[0:4095], m_pc, m_word, m_result;
    integer m_retired, m_outputs, m_expected[0:255], outputs, place, errors;
    task execute;
        begin
            for (place = 0; place < 16; place = place + 1) m_registers[place] = 32'd0;
            for (place = 0; place < 4096; place = place + 1) m_words[place] = 32'd0;
            m_pc = 0;
            m_retired = 0;
            m_outputs = 0;
            m_word = code_memory.words[0];
            while (m_word[31:28] != 4'hf) begin
                m_retired = m_retired + 1;
                m_result = m_registers[m_word[23:20]] + {{16{m_word[15]}}, m_word[15:0]};
                m_pc = m_pc + 1;
                case (m_word[31:28])
                    4'h1: m_registers[m_word[27:24]] =
                        m_registers[m_word[23:20]] + m_registers[m_word[19:16]];
                    4'h2: m_registers[m_word[27:24]] =
                        m_registers[m_word[23:20]] - m_registers[m_word[19:16]];
                    4'h3: m_registers[m_word[27:24]] =
                        m_registers[m_word[23:20]] & m_registers[m_word[19:16]];
                    4'h4: m_registers[m_word[27:24]] = m_result;
                    4'h5: m_registers[m_word[27:24]] =
                        m_registers[m_word[23:20]] * m_registers[m_word[19:16]];
                    4'h6: m_registers[m_word[27:24]] = m_words[m_result[11:0]];
                    4'h7: m_words[m_result[11:0]] = m_registers[m_word[19:16]];
                    4'h8: if (m_registers[m_word[23:20]] == m_registers[m_word[19:16]])
                        m_pc = m_pc - 1 + {{16{m_word[15]}}, m_word[15:0]};
                    4'h9: if ($signed(m_registers[m_word[23:20]]) <
                              $signed(m_registers[m_word[19:16]]))
                        m_pc = m_pc - 1 + {{16{m_word[15]}}, m_word[15:0]};
                    4'ha: m_pc = {{16{m_word[15]}}, m_word[15:0]};
                    4'hb: begin
                        m_expected[m_outputs] = m_registers[m_word[23:20]];
                        m_outputs = m_outputs + 1;
                    end
                    default: ;
                endcase
                m_registers[0] = 32'd0;
                m_word = code_memory.words[m_pc[11:0]];
            end
            m_retired = m_retired + 1;
        end
    endtask

    initial begin
        outputs = 0;
        errors = 0;
        #50 execute;
    end

    always @(posedge clock) begin
        if (port_valid) begin
            $display("%0d", port);
            if (port != m_expected[outputs]) errors = errors + 1;
            outputs = outputs + 1;
        end
        if (halted) begin
            for (place = 0; place < 16; place = place + 1)
                if (processor.registers[place] != m_registers[place]) errors = errors + 1;
            for (place = 0; place < 4096; place = place + 1)
                if (data_memory.words[place] != m_words[place]) errors = errors + 1;
            if (outputs != m_outputs || retired != m_retired) errors = errors + 1;
            $display("%0d instructions in %0d cycles, %0d errors", retired, $time / 10, errors);
            $display("instructions: %0d hits, %0d misses; data: %0d hits, %0d misses",
                     code_hits, code_misses, data_hits, data_misses);
            $finish;
        end
        if ($time > 50000000) begin
            $display("the processor does not halt");
            $finish;
        end
    end
endmodule
