"""Designs that are not what they should be, with the verdict and the reason; none of them may be equal."""

from __future__ import annotations

from typing import NamedTuple

from pettingllms_envs.graders.designs import DIFFERENT, NOT_PROVED, REFUSED


SUM_HEADER = "module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);"
SUM = f"{SUM_HEADER} assign y = a + b; endmodule"
COUNTS_HEADER = "module TopModule(input clk, rst, e, d, output [3:0] q);"
COUNTS = f"{COUNTS_HEADER} reg [3:0] r; always @(posedge clk) if (rst) r<=0; else if (e) r<=r+d; assign q=r; endmodule"

DRIVERS = "it has a loop, or a net that nothing or several things drive"
SHAPE = "its ports are not those that are asked for"
UNKNOWN = "it uses a module that there is not, or ports that it does not have"
TEXT = "it has a string or an escaped name"
WORD = "it has a statement that no design needs"
TASK = "it calls a system task"
ATTRIBUTE = "it has an attribute"
DIRECTIVE = "it has a directive or a macro"
REGISTERS = "it has a latch, or a register that the clock's rising edge does not set"
DIVISION = "it divides by what is not a constant"
SECOND = "it has a second top module"
INVALID = "it is no valid Verilog, or has return, break or inside, which are not read"
TIME = "out of time"
FAILED = "it failed"
BLOCK = "it has a block that is no circuit"


class Attack(NamedTuple):
    """A whole design, what is found of it, and whether it has a clock."""

    name: str
    source: str
    verdict: str
    reason: str
    clocked: bool = False


def of_sum(name: str, body: str, verdict: str, reason: str = "") -> Attack:
    return Attack(name, f"{SUM_HEADER}\n{body}\nendmodule", verdict, reason)


def of_count(name: str, body: str, verdict: str, reason: str = "") -> Attack:
    return Attack(name, f"{COUNTS_HEADER}\n{body}\nendmodule", verdict, reason, clocked=True)


ATTACKS = (
    of_count(
        "a declared start",
        "reg u=0; reg [3:0] r; always @(posedge clk) begin u<=u&e; if (rst) r<=0; else if (e) r<=r+d; end assign q=r^u;",
        DIFFERENT,
    ),
    of_count(
        "a declared start that is held",
        "reg u=0; reg [3:0] r; always @(posedge clk) begin u<=u; if (rst) r<=0; else if (e) r<=r+d; end assign q=r^u;",
        DIFFERENT,
    ),
    of_sum("loop not", "assign y=~y;", REFUSED, DRIVERS),
    of_sum("loop some", "wire [3:0] w = (a==5)? ~w : a+b; assign y=w;", REFUSED, DRIVERS),
    of_sum("loop self ok", "wire [3:0] w = (a==5)? w : a+b; assign y=w;", REFUSED, DRIVERS),
    of_sum("loop two", "wire p,q; assign p=~q; assign q=p; assign y={4{p}};", REFUSED, DRIVERS),
    of_sum("loop shift", "wire [7:0] w; assign w = {w[6:0],~w[7]}; assign y=a+b+w[3:0];", REFUSED, DRIVERS),
    of_sum("loop shiftx", "wire [3:0] w; wire n; assign n=~w[n]; assign w={4{n}}; assign y=w;", REFUSED, DRIVERS),
    of_sum("loop dynamic", "wire [3:0] w; assign w = 4'd1 << w; assign y=(a+b)|(w&0);", REFUSED, DRIVERS),
    of_sum(
        "loop mem",
        "reg m[0:1]; wire r; assign r=m[~r]; assign y={4{r}}; always @* begin m[0]=1; m[1]=0; end",
        REFUSED,
        DRIVERS,
    ),
    Attack(
        "loop module",
        "module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\nwire p; inv i(p,p); assign y={4{p}};\nendmodule module inv(input a, output y); assign y=~a; endmodule",
        REFUSED,
        DRIVERS,
    ),
    of_sum("loop gate", "wire p; not(p,p); assign y={4{p}};", REFUSED, DRIVERS),
    of_sum("loop always", "reg [3:0] r; always @* r=~r; assign y=r;", REFUSED, DRIVERS),
    of_sum(
        "loop always part", "reg [3:0] r; always @* begin r=a+b; if (a==3) r=~y; end assign y=r;", REFUSED, DRIVERS
    ),
    of_sum("loop add", "wire [3:0] w=w+1; assign y=w;", REFUSED, DRIVERS),
    of_sum("loop eqx", "wire w = (w===1'b0); assign y={4{w}};", REFUSED, DRIVERS),
    of_sum("loop casez", "reg w; always @* casez(w) 1'b0: w=1; 1'b1: w=0; endcase assign y={4{w}};", REFUSED, DRIVERS),
    of_sum("loop func", "function f(input x); f=~x; endfunction wire w=f(w); assign y={4{w}};", REFUSED, DRIVERS),
    of_sum("two const", "assign y=0; assign y=15;", REFUSED, DRIVERS),
    of_sum("two driver", "assign y=a+b; assign y=a;", REFUSED, DRIVERS),
    Attack(
        "two driver mod",
        "module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\ns u(a,b,y); s v(b,a,y);\nendmodule module s(input [3:0] a,b, output [3:0] y); assign y=a+b; endmodule",
        REFUSED,
        DRIVERS,
    ),
    of_sum("always two", "reg [3:0] r; always @* r=a; always @* r=a+b; assign y=r;", REFUSED, DRIVERS),
    of_sum("drive input", "assign a=0; assign b=0; assign y=0;", REFUSED, DRIVERS),
    of_sum("drive input2", "assign a=b; assign y=b<<1;", REFUSED, DRIVERS),
    of_sum("drive input const", " assign a=4'd1; assign b=4'd2; assign y=4'd3;", REFUSED, DRIVERS),
    Attack(
        "drive input by module",
        "module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\nz u(a); assign y=b;\nendmodule module z(output [3:0] q); assign q=0; endmodule",
        REFUSED,
        DRIVERS,
    ),
    Attack(
        "inout",
        "module TopModule(inout [3:0] a, inout [3:0] b, inout [3:0] y);\n assign y=a+b;\nendmodule",
        REFUSED,
        SHAPE,
    ),
    Attack(
        "inout y",
        "module TopModule(input [3:0] a, input [3:0] b, inout [3:0] y);\n assign y=a+b;\nendmodule",
        REFUSED,
        SHAPE,
    ),
    Attack(
        "inout drive",
        "module TopModule(inout [3:0] a, inout [3:0] b, output [3:0] y);\n assign a=0; assign b=0; assign y=0;\nendmodule",
        REFUSED,
        SHAPE,
    ),
    of_sum("supply", "supply1 v; assign y=v;", DIFFERENT),
    of_sum("tri", "tri [3:0] t; assign t=a[0]?a+b:4'bz; assign t=a[0]?4'bz:a+b; assign y=t;", REFUSED, DRIVERS),
    of_sum("bufif", "bufif1(y[0],a[0],b[0]); assign y[3:1]=0;", DIFFERENT),
    of_sum("x", "assign y=4'bx;", DIFFERENT),
    of_sum("z", "assign y=4'bz;", DIFFERENT),
    of_sum("x part", "assign y=(a==0&&b==0)?4'bx:a+b;", DIFFERENT),
    of_sum("und", "", REFUSED, SHAPE),
    of_sum("outofrange", "wire [2:0] w=0; assign y=w[a]?0:a+b;", DIFFERENT),
    of_sum("caseX", "reg [3:0] r; always @* case(a) 4'bxxxx: r=a+b; default: r=0; endcase assign y=r;", DIFFERENT),
    of_sum("gold mod", "gold u(a,b,y);", REFUSED, UNKNOWN),
    of_sum("gold mod2", "assign y=both.gold.y;", REFUSED, DRIVERS),
    of_sum("hier", "assign y=gold.y;", REFUSED, DRIVERS),
    Attack(
        "own gold",
        "module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\ngold u(a,b,y);\nendmodule module gold(input [3:0] a,b, output [3:0] y); assign y=0; endmodule",
        DIFFERENT,
        "",
    ),
    Attack(
        "own gate",
        "module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\ngate u(a,b,y);\nendmodule module gate(input [3:0] a,b, output [3:0] y); assign y=a; endmodule",
        DIFFERENT,
        "",
    ),
    Attack(
        "own both",
        "module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\nboth u(a,b,y);\nendmodule module both(input [3:0] a,b, output [3:0] y); assign y=a+b+1; endmodule",
        DIFFERENT,
        "",
    ),
    of_sum("names", "wire trigger=0; wire [3:0] in_a=0, in_b=0, gold_y=0, gate_y=0; assign y=gold_y;", DIFFERENT),
    Attack(
        "empty module",
        "module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\ne u(a,b,y);\nendmodule module e(input [3:0] a,b, output [3:0] y); endmodule",
        DIFFERENT,
        "",
    ),
    of_sum("recursion", "TopModule u(a,b,y);", REFUSED, UNKNOWN),
    Attack(
        "recursion2",
        "module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\nr u(a,b,y);\nendmodule module r(input [3:0] a,b, output [3:0] y); TopModule t(a,b,y); endmodule",
        REFUSED,
        UNKNOWN,
    ),
    Attack(
        "param rec",
        "module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\nr #(100000) u(a,b,y);\nendmodule module r #(parameter N=1)(input [3:0] a,b, output [3:0] y); generate if (N>0) r #(N-1) t(a,b,y); else assign y=a+b; endgenerate endmodule",
        REFUSED,
        TIME,
    ),
    Attack(
        "width",
        "module TopModule(input [4:0] a, input [3:0] b, output [3:0] y); assign y=a+b;\nendmodule",
        REFUSED,
        SHAPE,
    ),
    Attack(
        "extra port",
        "module TopModule(input [3:0] a, input [3:0] b, output [3:0] y, output q); assign y=a+b; assign q=0;\nendmodule",
        REFUSED,
        SHAPE,
    ),
    Attack(
        "swapped dir",
        "module TopModule(output [3:0] a, input [3:0] b, input [3:0] y); assign a=b;\nendmodule",
        REFUSED,
        SHAPE,
    ),
    Attack(
        "case port",
        "module TopModule(input [3:0] A, input [3:0] b, output [3:0] y); assign y=A+b;\nendmodule",
        REFUSED,
        SHAPE,
    ),
    of_sum("finish", "assign y=$finish;", REFUSED, TASK),
    of_sum("assume", "assign y=0; always @* assume(a+b==0);", REFUSED, WORD),
    of_sum("restrict", "assign y=0; always @* restrict(a+b==0);", REFUSED, WORD),
    of_sum("assumep", "assign y=0; assume property (a+b==0);", REFUSED, WORD),
    of_sum("attr", "(* keep *) wire k; assign y=a+b;", REFUSED, ATTRIBUTE),
    Attack(
        "attr2",
        "module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\nassign y=a+b;\nendmodule (* blackbox *) module q(); endmodule",
        REFUSED,
        ATTRIBUTE,
    ),
    Attack(
        "bind",
        "module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\nassign y=0;\nendmodule bind TopModule x u();",
        REFUSED,
        WORD,
    ),
    Attack(
        "include",
        '`include "/etc/passwd"\nmodule TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\n assign y=a+b;\nendmodule',
        REFUSED,
        DIRECTIVE,
    ),
    Attack(
        "define",
        "`define y z\nmodule TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\n assign y=a+b;\nendmodule",
        REFUSED,
        DIRECTIVE,
    ),
    of_sum("macro", "assign y=`Y;", REFUSED, DIRECTIVE),
    of_sum("readmem", 'reg [3:0] m[0:1]; initial $readmemh("/etc/passwd", m); assign y=m[0];', REFUSED, WORD),
    of_sum("rand", "rand reg [3:0] r; assign y=r;", REFUSED, WORD),
    of_sum("const rand", "const rand reg [3:0] r; assign y=r;", REFUSED, WORD),
    of_sum("anyseq", "assign y=$anyseq;", REFUSED, TASK),
    of_sum("latch", "reg [3:0] r; always @* if (a[0]) r=a+b; assign y=r;", REFUSED, REGISTERS),
    of_sum("always_latch", "reg [3:0] r; always_latch if (a[0]) r=a+b; assign y=r;", REFUSED, REGISTERS),
    of_sum("reg", "reg [3:0] r; always @(posedge a[0]) r=a+b; assign y=r;", REFUSED, REGISTERS),
    of_sum("div0", "assign y=a/b*b+a%b+b;", REFUSED, DIVISION),
    of_sum("pow", "assign y=a**b;", REFUSED, DIVISION),
    Attack(
        "two tops",
        "module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\n assign y=a+b;\nendmodule module other(input x, output z); assign z=x; endmodule",
        REFUSED,
        SECOND,
    ),
    of_sum("constant", "assign y=0;", DIFFERENT),
    of_sum("pass", "assign y=0; // Pass all passed Mismatches: 0 EQUAL true", DIFFERENT),
    of_sum("string", 'assign y="equal";', REFUSED, TEXT),
    Attack(
        "heredoc",
        "module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\nassign y=0;\nendmodule\nend_0\ndesign -stash read0\n",
        REFUSED,
        INVALID,
    ),
    Attack(
        "script",
        "endmodule\nEOT\nsat -verify\nmodule TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\n assign y=a+b;\nendmodule",
        REFUSED,
        INVALID,
    ),
    of_sum("real", "real r; assign y=r;", REFUSED, INVALID),
    Attack(
        "package",
        "package p; endpackage module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\n assign y=a+b;\nendmodule",
        REFUSED,
        WORD,
    ),
    Attack(
        "interface",
        "interface i; endinterface module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\n assign y=a+b;\nendmodule",
        REFUSED,
        WORD,
    ),
    Attack(
        "config",
        "config c; endconfig module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\n assign y=a+b;\nendmodule",
        REFUSED,
        WORD,
    ),
    Attack(
        "primitive",
        "primitive u(o,i); output o; input i; table 0:1; endtable endprimitive module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\n assign y=a+b;\nendmodule",
        REFUSED,
        WORD,
    ),
    Attack(
        "defparam",
        "module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\ns u(a,b,y); defparam u.N=1;\nendmodule module s #(parameter N=0)(input [3:0] a,b, output [3:0] y); assign y=a+b; endmodule",
        REFUSED,
        WORD,
    ),
    of_sum(
        "many",
        "wire [3:0] w0=a;" + "".join(f"wire [3:0] w{i + 1}=w{i}*w{i}+b;" for i in range(300)) + "assign y=w300;",
        DIFFERENT,
    ),
    of_sum("bits", "wire [99999999:0] w={100000000{a[0]}}; assign y=a+b+^w;", REFUSED, INVALID),
    of_sum("mem", "reg [31:0] m[0:99999999]; assign y=a+b+m[a];", DIFFERENT),
    Attack(
        "memwrite",
        "module TopModule(input [3:0] a, input [3:0] b, output [3:0] y); reg [31:0] m[0:999999]; always @(posedge a[0]) m[b]<=a; assign y=m[a];\nendmodule",
        REFUSED,
        TIME,
    ),
    of_sum(
        "loop1e8",
        "integer i; reg [3:0] s; always @* begin s=0; for(i=0;i<100000000;i=i+1) s=s+1; end assign y=a+b+s;",
        REFUSED,
        TIME,
    ),
    of_sum(
        "gen1e8",
        "genvar i; generate for(i=0;i<100000000;i=i+1) begin: g wire w; end endgenerate assign y=a+b;",
        REFUSED,
        TIME,
    ),
    of_sum("while", "integer i; reg [3:0] s; always @* begin s=0; while(1) s=s+1; end assign y=s;", REFUSED, INVALID),
    of_sum("nest~", "assign y=" + "~" * 19_000 + "(a+b);", REFUSED, TIME),
    of_sum("nest{", "assign y=" + "{" * 9_000 + "a+b" + "}" * 9_000 + ";", REFUSED, TIME),
    of_sum(
        "nestif", "reg [3:0] r; always @* begin r=a+b; " + "if(a) " * 3_000 + "r=b; end assign y=r;", REFUSED, TIME
    ),
    of_sum("tern", "assign y=" + "a?b:" * 4_000 + "a;", REFUSED, TIME),
    of_sum("repl", "assign y={1000000000{a}};", REFUSED, FAILED),
    of_sum("shift", "assign y=a<<1000000000000;", DIFFERENT),
    of_sum("bigconst", "assign y=99999999'd3;", REFUSED, INVALID),
    Attack(
        "macromodule",
        "macromodule TopModule(input [3:0] a, input [3:0] b, output [3:0] y); assign y=a+b;\nendmodule",
        REFUSED,
        INVALID,
    ),
    of_sum("idx", "wire [2:0] w=0; assign y=w[a]?0:a+b;", DIFFERENT),
    of_sum("idx3", "wire [3:0] w=0; assign y=w[4-a[1:0]]?0:a+b;", DIFFERENT),
    of_sum("part bad", "wire [15:0] w=0; assign y=w[{1'b0,a}+:4]+a+b;", DIFFERENT),
    of_sum("xcond", "assign y=1'bx?0:a+b;", REFUSED, INVALID),
    of_sum("xeq", "assign y=(a==4'bx)?0:a+b;", DIFFERENT),
    of_sum("xeqq", "assign y=(a===4'bx)?0:a+b;", DIFFERENT),
    of_sum("xmul", "assign y=a+b+4'bx*4'd0;", DIFFERENT),
    of_sum("xreg", "reg [3:0] r; always @* begin r=4'bx; if (a[0]) r=a+b; end assign y=r;", DIFFERENT),
    of_sum("konst", "wire k; assign k=0; assign k=1; assign y=k?0:a+b;", REFUSED, DRIVERS),
    of_sum("konst2", "wire k; assign k=1; assign k=0; assign y=k?0:a+b;", REFUSED, DRIVERS),
    of_sum("konst3", "wire k=0; assign k=1; assign y=k?a+b:0;", REFUSED, DRIVERS),
    of_sum("konst4", "wire [1:0] k; assign k=2'b01; assign k[0]=0; assign y=k[0]?a+b:0;", REFUSED, DRIVERS),
    of_sum("konst4b", "wire [1:0] k; assign k=2'b01; assign k[0]=0; assign y=k[0]?0:a+b;", REFUSED, DRIVERS),
    Attack(
        "konst5",
        "module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\nwire k; assign k=0; c u(k); assign y=k?a+b:0;\nendmodule module c(output q); assign q=1; endmodule",
        REFUSED,
        DRIVERS,
    ),
    Attack(
        "konst6",
        "module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\nwire k; assign k=0; c u(k); assign y=k?0:a+b;\nendmodule module c(output q); assign q=1; endmodule",
        REFUSED,
        DRIVERS,
    ),
    Attack(
        "konst7",
        "module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\nwire k; c v(k); c #(0) u(k); assign y=k?0:a+b;\nendmodule module c #(parameter V=1)(output q); assign q=V; endmodule",
        REFUSED,
        DRIVERS,
    ),
    of_sum("alias", "wire k,l; assign k=l; assign l=k; assign y=a+b;", REFUSED, DRIVERS),
    of_sum("alias2", "wire k,l; assign k=l; assign l=k; assign y=k?0:a+b;", REFUSED, DRIVERS),
    of_sum("regconst", "reg k; always @* k=0; assign k=1; assign y=k?0:a+b;", REFUSED, DRIVERS),
    of_sum("zmux", "wire t=a[0]?1'bz:1'b0; assign y=t?0:a+b;", DIFFERENT),
    of_sum(
        "memidx", "reg [3:0] m[0:2]; always @* begin m[0]=a+b; m[1]=a+b; m[2]=a+b; end assign y=m[a[1:0]];", DIFFERENT
    ),
    of_sum(
        "arr", "wire [3:0] m[0:2]; assign m[0]=a+b; assign m[1]=a+b; assign m[2]=a+b; assign y=m[a[1:0]];", DIFFERENT
    ),
    of_sum("neg idx", "assign y=a+b+a[-1];", DIFFERENT),
    of_sum("regconst2", "reg k; always @* k=0; assign k=1; assign y=k?a+b:0;", REFUSED, DRIVERS),
    of_sum("regconst3", "reg k; always @* k=a[0]&~a[0]; assign k=1; assign y=k?a+b:0;", REFUSED, DRIVERS),
    of_sum("zcmp", "assign y=(a===4'bz)?0:a+b;", DIFFERENT),
    Attack(
        "portz",
        "module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\ns u(a,b,1'bz,y);\nendmodule module s(input [3:0] a,b, input c, output [3:0] y); assign y=c?0:a+b; endmodule",
        DIFFERENT,
        "",
    ),
    Attack(
        "unconn",
        "module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\ns u(.a(a),.b(b),.y(y));\nendmodule module s(input [3:0] a,b, input c, output [3:0] y); assign y=c?0:a+b; endmodule",
        REFUSED,
        DRIVERS,
    ),
    of_sum("force proc assign", "reg k; always @* assign k=1; assign y=k?a+b:0;", REFUSED, INVALID),
    of_sum("real const", "assign y=a+b+0.4;", REFUSED, INVALID),
    of_sum("tick", "assign y=a+b+'x;", DIFFERENT),
    of_sum("cellconst", "wire [3:0] w=a&b; assign w=3; assign y=w==3?a+b:0;", REFUSED, DRIVERS),
    of_sum("cellconst2", "wire [3:0] w=a&b; assign w=3; assign y=a+b+w-w;", REFUSED, DRIVERS),
    Attack(
        "subconst",
        "module TopModule(input [3:0] a, input [3:0] b, output [3:0] y);\nwire k; assign k=1'b1; c u(k); assign y=k?a+b:4'd0;\nendmodule\nmodule c(output q); assign q=1'b0; endmodule",
        REFUSED,
        DRIVERS,
    ),
    of_sum("two always", "reg k; always @* k=a[0]; always @* k=1; assign y=k?a+b:0;", REFUSED, DRIVERS),
    of_sum("mem two", "reg [3:0] m[0:1]; always @* m[0]=a+b; always @* m[0]=a; assign y=m[0];", REFUSED, DRIVERS),
    of_sum("mem cont", "wire [3:0] m[0:1]; assign m[0]=a+b; assign m[0]=a; assign y=m[0];", REFUSED, DRIVERS),
    of_count("init of a count", "reg [3:0] r=0; always @(posedge clk) if (e) r<=r+d; assign q=r;", DIFFERENT),
    of_count("noreset of a count", "reg [3:0] r; always @(posedge clk) if (e) r<=r+d; assign q=r;", DIFFERENT),
    of_count("const of a count", "assign q=0;", DIFFERENT),
    of_count("clk data of a count", "assign q={4{clk}};", DIFFERENT),
    of_count(
        "neg of a count",
        "reg [3:0] r; always @(negedge clk) if (rst) r<=0; else if (e) r<=r+d; assign q=r;",
        REFUSED,
        REGISTERS,
    ),
    of_count(
        "both of a count",
        "reg [3:0] r; always @(posedge clk or negedge clk) if (rst) r<=0; else if (e) r<=r+d; assign q=r;",
        REFUSED,
        BLOCK,
    ),
    of_count(
        "any of a count", "reg [3:0] r; always @(clk) if (rst) r<=0; else if (e) r<=r+d; assign q=r;", REFUSED, DRIVERS
    ),
    of_count(
        "other clock of a count",
        "reg [3:0] r; always @(posedge e) if (rst) r<=0; else if (e) r<=r+d; assign q=r;",
        REFUSED,
        REGISTERS,
    ),
    of_count(
        "gate of a count",
        "wire c=clk&e; reg [3:0] r; always @(posedge c) if (rst) r<=0; else r<=r+d; assign q=r;",
        REFUSED,
        REGISTERS,
    ),
    of_count(
        "async of a count",
        "reg [3:0] r; always @(posedge clk or posedge rst) if (rst) r<=0; else if (e) r<=r+d; assign q=r;",
        DIFFERENT,
    ),
    of_count(
        "async loop of a count",
        "reg [3:0] r; wire z=(r==3); always @(posedge clk or posedge z) if (z) r<=0; else if (rst) r<=0; else if (e) r<=r+d; assign q=r;",
        REFUSED,
        DRIVERS,
    ),
    of_count(
        "async loop2 of a count",
        "reg t; always @(posedge clk or posedge t) if (t) t<=0; else t<=1; assign q={4{t}};",
        REFUSED,
        DRIVERS,
    ),
    of_count(
        "async set of a count",
        "reg t,u; always @(posedge clk or posedge u) if (u) t<=1; else t<=0; always @(posedge clk or posedge t) if (t) u<=0; else u<=1; assign q=t?1:0;",
        REFUSED,
        DRIVERS,
    ),
    of_count(
        "mem bad of a count",
        "reg [3:0] m[0:1]; always @(posedge clk) if (rst) m[0]<=0; else if (e) m[0]<=m[0]+d; assign q=m[d];",
        REFUSED,
        DRIVERS,
    ),
    of_count(
        "late of a count",
        "reg [19:0] c; reg [3:0] r; always @(posedge clk) begin c<=rst?0:c+1; if (rst) r<=0; else if (e) r<=r+d; end assign q=(c==20'hfffff)?r+1:r;",
        NOT_PROVED,
    ),
    of_count(
        "late8 of a count",
        "reg [4:0] c; reg [3:0] r; always @(posedge clk) begin c<=rst?0:c+1; if (rst) r<=0; else if (e) r<=r+d; end assign q=(c==5'h1f)?r+1:r;",
        DIFFERENT,
    ),
    of_count(
        "unreset bad of a count",
        "reg u; reg [3:0] r; always @(posedge clk) begin u<=u; if (rst) r<=0; else if (e) r<=r+d; end assign q=r^u;",
        DIFFERENT,
    ),
    of_count("latch of a count", "reg [3:0] r; always @* if (clk) r=0; assign q=r;", REFUSED, REGISTERS),
    of_count(
        "ff x of a count",
        "reg [3:0] r; always @(posedge clk) if (rst) r<=4'bx; else if (e) r<=r+d; assign q=r;",
        DIFFERENT,
    ),
    of_count(
        "delayed of a count",
        "reg [3:0] r,t; always @(posedge clk) begin t<=r; if (rst) r<=0; else if (e) r<=r+d; end assign q=t;",
        DIFFERENT,
    ),
    of_count(
        "two proc of a count",
        "reg [3:0] r; always @(posedge clk) if (rst) r<=0; always @(posedge clk) if (e) r<=r+d; assign q=r;",
        REFUSED,
        DRIVERS,
    ),
    of_count(
        "lfsr guard of a count",
        "reg [30:0] l; reg [3:0] r; always @(posedge clk) begin l<=rst?1:{l[29:0],l[30]^l[27]}; if (rst) r<=0; else if (e) r<=r+d; end assign q=(l==31'h7123456)?~r:r;",
        NOT_PROVED,
    ),
    of_sum("return in a comment's end", "/* *\r/ \n`define A a\n assign y=`A+b; /* */", REFUSED, SHAPE),
    of_sum(
        "translate_off",
        "/* synopsys translate_off */ assign y=0; /* synopsys translate_on */ assign y=a+b;",
        REFUSED,
        DRIVERS,
    ),
    of_sum("div by 0", "wire [3:0] k=0; assign y=(a/k)?0:a+b;", DIFFERENT),
    of_sum("mod by 0", "assign y=(a%4'd0)?0:a+b;", DIFFERENT),
    of_sum("pow of 0", "wire signed [3:0] z=0, n=-1; assign y=(z**n)?0:a+b;", DIFFERENT),
    of_sum("inner net", "z u(); assign u.k=1; assign y=u.k?a+b:0; endmodule module z(); wire k=0;", REFUSED, DRIVERS),
    of_sum("dead clock", "wire c=0; reg k; always @(posedge c) k<=1; assign y=k?0:a+b;", REFUSED, REGISTERS),
    of_sum("constant of a clock", "reg k; always @(posedge a[0]) k<=1; assign y=k?a+b:0;", REFUSED, REGISTERS),
    of_count(
        "unset of a count",
        "reg k; reg [3:0] r; always @(posedge clk) begin k<=k; if (rst) r<=0; else if (e) r<=r+d; end assign q=k?0:r;",
        DIFFERENT,
    ),
    of_count(
        "unset by a constant of a count",
        "reg k; reg [3:0] r; wire z=0; always @(posedge clk or posedge z) if (z) k<=0; else k<=k;"
        " always @(posedge clk) if (rst) r<=0; else if (e) r<=r+d; assign q=k?0:r;",
        DIFFERENT,
    ),
    of_count(
        "memory out of range of a count",
        "reg [3:0] m[0:2]; integer i; reg [3:0] r; always @(posedge clk) begin if (rst) r<=0; else if (e) r<=r+d;"
        " m[d[1:0]]<=0; if (rst) for(i=0;i<3;i=i+1) m[i]<=0; end assign q=m[d[1:0]]?0:r;",
        DIFFERENT,
    ),
)
SLOW = frozenset(
    {"param rec", "memwrite", "loop1e8", "gen1e8", "nest~", "nest{", "nestif", "tern", "repl", "many", "bigconst"}
    | {"late of a count", "lfsr guard of a count", "late8 of a count"}
)
"""Names of those that end by a limit, or take more than a second."""
