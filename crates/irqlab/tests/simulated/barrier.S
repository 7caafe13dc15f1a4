# With COMPUTES, a program that computes on CPU 1 for ever, and lets every process's membarrier(2) interrupt it. Without, a
# program on CPU 0 that interrupts all such programs CALLS times, and ends.
.set SCHED_SETAFFINITY, 203
.set EXIT_GROUP, 231
.set MEMBARRIER, 324

.set GLOBAL_EXPEDITED, 2
.set REGISTER_GLOBAL_EXPEDITED, 4

.globl _start
_start:
        mov     $SCHED_SETAFFINITY, %eax
        xor     %edi, %edi
        mov     $8, %esi
        lea     cpu(%rip), %rdx
        syscall
        xor     %esi, %esi
.ifdef COMPUTES
        mov     $MEMBARRIER, %eax
        mov     $REGISTER_GLOBAL_EXPEDITED, %edi
        syscall
1:      add     $1, %rax
        jmp     1b
.else
        mov     $CALLS, %ebx
2:      mov     $MEMBARRIER, %eax
        mov     $GLOBAL_EXPEDITED, %edi
        syscall
        dec     %ebx
        jnz     2b
        mov     $EXIT_GROUP, %eax
        xor     %edi, %edi
        syscall
.endif

.data
.ifdef COMPUTES
cpu:    .quad   2
.else
cpu:    .quad   1
.endif
