# Two threads, each of which adds to a number of its own. Both numbers lie in one line of memory.
.set ADDITIONS, 60000
.set CLONE, 56
.set EXIT, 60
# CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD
.set THREAD, 0x10f00

.globl _start
_start:
        mov     $CLONE, %eax
        mov     $THREAD, %edi
        lea     stack_end(%rip), %rsi
        xor     %edx, %edx
        xor     %r10d, %r10d
        xor     %r8d, %r8d
        syscall
        lea     numbers(%rip), %rbx
        test    %eax, %eax
        jnz     1f
        add     $8, %rbx
1:      mov     $ADDITIONS, %ecx
count_up:
2:      incq    (%rbx)
        dec     %ecx
        jnz     2b
        mov     $EXIT, %eax
        xor     %edi, %edi
        syscall

.bss
.balign 4096
numbers:
        .zero   4096
stack:
        .zero   4096
stack_end:
