# A program with two threads. One computes on CPU 1. The other one runs on CPU 0, where it calls membarrier(2) CALLS times,
# then unmaps pages that it has written, UNMAPS times, and then gives the other thread another scheduling class, RESCHEDULES
# times. Each call interrupts CPU 1, and so does each unmapping: CPU 1 may have the translations of the pages in its TLB. The
# running thread of CPU 1 leaves class SCHED_FIFO, so CPU 0 sends CPU 1 a reschedule interrupt.
.ifndef CALLS
.set CALLS, 200
.endif
.set UNMAPS, 100
.set RESCHEDULES, 50

.set MMAP, 9
.set MUNMAP, 11
.set CLONE, 56
.set SCHED_SETSCHEDULER, 144
.set SCHED_SETAFFINITY, 203
.set EXIT_GROUP, 231
.set MEMBARRIER, 324

.set THREAD, 0x10f00                    # CLONE_VM, _FS, _FILES, _SIGHAND and _THREAD
.set PRIVATE_EXPEDITED, 8
.set REGISTER_PRIVATE_EXPEDITED, 16
.set PAGE, 4096
.set BYTES, 32 * PAGE               # the kernel flushes so many pages one by one

.globl _start
_start:
        mov     $CLONE, %eax
        mov     $THREAD, %edi
        lea     stack_end(%rip), %rsi
        xor     %edx, %edx
        xor     %r10d, %r10d
        xor     %r8d, %r8d
        syscall
        test    %eax, %eax
        jz      computes
        mov     %eax, %r13d             # the other thread

        lea     cpu0(%rip), %rdx
        call    pin
1:      cmpl    $0, started(%rip)
        je      1b
        mov     $MEMBARRIER, %eax
        mov     $REGISTER_PRIVATE_EXPEDITED, %edi
        xor     %esi, %esi
        syscall
        mov     $CALLS, %ebx
2:      mov     $MEMBARRIER, %eax
        mov     $PRIVATE_EXPEDITED, %edi
        xor     %esi, %esi
        syscall
        dec     %ebx
        jnz     2b
        mov     $UNMAPS, %ebx
3:      mov     $MMAP, %eax
        xor     %edi, %edi
        mov     $BYTES, %esi
        mov     $3, %edx                # PROT_READ and PROT_WRITE
        mov     $0x22, %r10d            # MAP_PRIVATE and MAP_ANONYMOUS
        mov     $-1, %r8
        xor     %r9d, %r9d
        syscall
        mov     $BYTES, %esi
6:      sub     $PAGE, %rsi
        movb    $1, (%rax, %rsi)
        jnz     6b
        mov     %rax, %rdi
        mov     $BYTES, %esi
        mov     $MUNMAP, %eax
        syscall
        dec     %ebx
        jnz     3b
        mov     $RESCHEDULES, %ebx
4:      mov     $SCHED_SETSCHEDULER, %eax
        mov     %r13d, %edi
        mov     $1, %esi                # SCHED_FIFO
        lea     fifo(%rip), %rdx
        syscall
        mov     $SCHED_SETSCHEDULER, %eax
        mov     %r13d, %edi
        xor     %esi, %esi              # SCHED_OTHER
        lea     other(%rip), %rdx
        syscall
        dec     %ebx
        jnz     4b
        mov     $EXIT_GROUP, %eax
        xor     %edi, %edi
        syscall

computes:
        lea     cpu1(%rip), %rdx
        call    pin
        movl    $1, started(%rip)
5:      add     $1, %rax
        jmp     5b

# Moves the thread to the CPUs of the mask at rdx.
pin:
        mov     $SCHED_SETAFFINITY, %eax
        xor     %edi, %edi
        mov     $8, %esi
        syscall
        ret

.data
cpu0:   .quad   1
cpu1:   .quad   2
fifo:   .long   1                       # the priority
other:  .long   0
started:
        .long   0

.bss
.balign 16
        .zero   4096
stack_end:
