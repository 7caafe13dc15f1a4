# A program that holds its CPU for 150 ms under SCHED_FIFO, so that no kernel thread of a lower priority runs there.

.set LENGTH_NS, 150000000
.set PRIORITY, 50
.set SCHED_FIFO, 1

.set SCHED_SETSCHEDULER, 144
.set CLOCK_GETTIME, 228
.set EXIT, 60
.set CLOCK_MONOTONIC, 1
.set NS_PER_S, 1000000000

.globl _start
_start:
        mov     $SCHED_SETSCHEDULER, %eax
        xor     %edi, %edi
        mov     $SCHED_FIFO, %esi
        lea     priority(%rip), %rdx
        syscall
        test    %eax, %eax
        jnz     ends
        call    now
        mov     %rax, %rbx
1:      call    now
        sub     %rbx, %rax
        cmp     $LENGTH_NS, %rax
        jb      1b
        xor     %eax, %eax
ends:   mov     %eax, %edi
        mov     $EXIT, %eax
        syscall

# Returns the monotonic time in ns.
now:    mov     $CLOCK_GETTIME, %eax
        mov     $CLOCK_MONOTONIC, %edi
        lea     time(%rip), %rsi
        syscall
        imul    $NS_PER_S, time(%rip), %rax
        add     time+8(%rip), %rax
        ret

.data
priority: .long PRIORITY
.bss
        .balign 8
time:   .skip 16
