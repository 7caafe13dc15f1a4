# A program with one function, whose name is WALK. It writes to each 16 bytes of 64 KiB, eight times: the caches of the
# first level do not hold them.
.set BYTES, 65536
.set STEP, 16
.set ROUNDS, 8
.set EXIT, 60

.globl _start
_start:
        call    WALK
        mov     $EXIT, %eax
        xor     %edi, %edi
        syscall

.type WALK, @function
WALK:
        mov     $ROUNDS, %ecx
1:      lea     bytes(%rip), %rbx
        lea     BYTES(%rbx), %rdx
2:      incb    (%rbx)
        add     $STEP, %rbx
        cmp     %rdx, %rbx
        jb      2b
        dec     %ecx
        jnz     1b
        ret
.size WALK, . - WALK

.bss
.balign 4096
bytes:
        .zero   BYTES
