package gpu

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// typeTable lists NVIDIA's cards since 2016 by Berth's names of their types. The columns
// are the compute capability, the memory in GiB (the most common size first), the power
// in W at full load, and the speed of simulated devices in thousandths of an h100.
// TypeOf makes names for cards that are not listed.
const typeTable = `
# Data centres.
p4        6.1  8         75    50
p6        6.1  16        90    55
p40       6.1  24        250   60
p100      6.0  16,12     250   80
v100      7.0  16,32     300   220
v100s     7.0  32        250   230
t4        7.5  16        70    120
t4g       7.5  16        70    120
a2        8.6  16        60    90
a10       8.6  24        150   250
a10g      8.6  24        300   260
a16       8.6  16        62    90
a30       8.0  24        165   330
a40       8.6  48        300   300
a100      8.0  80,40     400   600
a100x     8.0  80        300   580
a800      8.0  80,40     400   590
l2        8.9  24        72    190
l4        8.9  24        72    200
l20       8.9  48        275   350
l40       8.9  48        300   430
l40s      8.9  48        350   450
h20       9.0  96,141    500   400
h100      9.0  80,94,64  700   1000
h200      9.0  141       700   1100
h800      9.0  80        700   950
gh200     9.0  96,144    900   1100
b100      10.0 180,192   700   1400
b200      10.0 180       1000  1600
gb200     10.0 186       1200  1700
b300      10.3 270       1400  1900
gb300     10.3 278       1400  2000
gb10      12.1 119       140   250

# GeForce and TITAN.
gt_1030               6.1  2,4      30   30
gtx_1050              6.1  2,3,4    75   35
gtx_1050_ti           6.1  4        75   38
gtx_1060              6.1  6,3,5    120  45
gtx_1070              6.1  8        150  50
gtx_1070_ti           6.1  8        180  55
gtx_1080              6.1  8        180  60
gtx_1080_ti           6.1  11       250  70
titan_x_pascal        6.1  12       250  70
titan_xp              6.1  12       250  75
mx150                 6.1  2,4      25   30
mx250                 6.1  2        25   30
mx330                 6.1  2        25   30
mx350                 6.1  2        25   32
titan_v               7.0  12       250  210
titan_v_ceo           7.0  32       250  220
gtx_1630              7.5  4        75   35
gtx_1650              7.5  4        75   45
gtx_1650_ti           7.5  4        55   48
gtx_1650_super        7.5  4        100  50
gtx_1660              7.5  6        120  55
gtx_1660_super        7.5  6        125  57
gtx_1660_ti           7.5  6        120  58
mx450                 7.5  2        28   40
mx550                 7.5  2        25   42
rtx_2060              7.5  6,12     160  110
rtx_2060_super        7.5  8        175  120
rtx_2070              7.5  8        175  125
rtx_2070_super        7.5  8        215  135
rtx_2080              7.5  8        215  145
rtx_2080_super        7.5  8        250  150
rtx_2080_ti           7.5  11       250  180
titan_rtx             7.5  24       280  200
mx570                 8.6  2,4      25   50
rtx_2050              8.6  4        45   60
rtx_3050              8.6  8,6,4    130  90
rtx_3050_laptop       8.6  4,6      80   70
rtx_3050_ti_laptop    8.6  4        80   75
rtx_3060              8.6  12,8     170  130
rtx_3060_laptop       8.6  6        115  110
rtx_3060_ti           8.6  8        200  160
rtx_3070              8.6  8        220  180
rtx_3070_laptop       8.6  8        125  140
rtx_3070_ti           8.6  8        290  190
rtx_3070_ti_laptop    8.6  8        125  150
rtx_3080              8.6  10,12    320  240
rtx_3080_laptop       8.6  8,16     150  160
rtx_3080_ti           8.6  12       350  270
rtx_3080_ti_laptop    8.6  16       175  180
rtx_3090              8.6  24       350  280
rtx_3090_ti           8.6  24       450  310
rtx_4050_laptop       8.9  6        115  120
rtx_4060              8.9  8        115  160
rtx_4060_laptop       8.9  8        115  150
rtx_4060_ti           8.9  8,16     165  200
rtx_4070              8.9  12       200  240
rtx_4070_laptop       8.9  8        115  170
rtx_4070_super        8.9  12       220  280
rtx_4070_ti           8.9  12       285  310
rtx_4070_ti_super     8.9  16       285  340
rtx_4080              8.9  16       320  380
rtx_4080_laptop       8.9  12       175  260
rtx_4080_super        8.9  16       320  400
rtx_4090              8.9  24       450  550
rtx_4090_d            8.9  24       425  500
rtx_4090_laptop       8.9  16       175  340
rtx_5050              12.0 8        130  170
rtx_5050_laptop       12.0 8        100  150
rtx_5060              12.0 8        145  220
rtx_5060_laptop       12.0 8        115  180
rtx_5060_ti           12.0 16,8     180  260
rtx_5070              12.0 12       250  340
rtx_5070_laptop       12.0 8        115  220
rtx_5070_ti           12.0 16       300  430
rtx_5070_ti_laptop    12.0 12       140  290
rtx_5080              12.0 16       360  520
rtx_5080_laptop       12.0 16       175  360
rtx_5090              12.0 32       575  800
rtx_5090_d            12.0 32       575  700
rtx_5090_d_v2         12.0 24       575  680
rtx_5090_laptop       12.0 24       175  450

# Workstations: Quadro, T, RTX, RTX A, RTX Ada, RTX PRO.
p400      6.1  2         30    30
p600      6.1  2         40    30
p620      6.1  2         40    32
p1000     6.1  4         47    35
p2000     6.1  5,4       75    40
p2200     6.1  5         75    42
p3000     6.1  6         75    42
p3200     6.1  6         75    45
p4000     6.1  8         105   50
p4200     6.1  8         100   52
p5000     6.1  16        180   60
p5200     6.1  16        150   60
p6000     6.1  24        250   70
gp100     6.0  16        235   80
gv100     7.0  32        250   220
t400      7.5  2,4       30    40
t500      7.5  2,4       25    40
t600      7.5  4         40    45
t1000     7.5  4,8       50    50
t1200     7.5  4         95    55
t2000     7.5  4         60    55
rtx_3000  7.5  6         80    100
rtx_4000  7.5  8         160   130
rtx_5000  7.5  16        230   160
rtx_6000  7.5  24        260   190
rtx_8000  7.5  48        260   190

rtx_a400              8.6  4        50   60
rtx_a500              8.6  4        60   70
rtx_a500_laptop       8.6  4        60   65
rtx_a1000             8.6  8        50   90
rtx_a1000_laptop      8.6  4,6      95   80
rtx_a2000             8.6  6,12     70   110
rtx_a2000_laptop      8.6  4,8      95   95
rtx_a3000_laptop      8.6  6,12     130  120
rtx_a4000             8.6  16       140  180
rtx_a4000_laptop      8.6  8        140  150
rtx_a4500             8.6  20       200  220
rtx_a4500_laptop      8.6  16       140  160
rtx_a5000             8.6  24       230  250
rtx_a5000_laptop      8.6  16       165  170
rtx_a5500             8.6  24       230  280
rtx_a5500_laptop      8.6  16       165  180
rtx_a6000             8.6  48       300  300
rtx_500_ada_laptop    8.9  4        60   100
rtx_1000_ada_laptop   8.9  6        140  120
rtx_2000_ada          8.9  16       70   130
rtx_2000_ada_laptop   8.9  8        140  150
rtx_3000_ada_laptop   8.9  8        140  170
rtx_3500_ada_laptop   8.9  12       140  200
rtx_4000_ada          8.9  20       130  250
rtx_4000_ada_laptop   8.9  12       175  240
rtx_4000_sff_ada      8.9  20       70   190
rtx_4500_ada          8.9  24       210  330
rtx_5000_ada          8.9  32       250  420
rtx_5000_ada_laptop   8.9  16       175  320
rtx_5880_ada          8.9  48       285  430
rtx_6000_ada          8.9  48       300  480

rtx_pro_500_blackwell_laptop        12.0  6      60   110
rtx_pro_1000_blackwell_laptop       12.0  8      60   150
rtx_pro_2000_blackwell              12.0  16     70   200
rtx_pro_2000_blackwell_laptop       12.0  8      115  180
rtx_pro_3000_blackwell_laptop       12.0  12     140  240
rtx_pro_4000_blackwell              12.0  24     140  380
rtx_pro_4000_blackwell_laptop       12.0  16     175  330
rtx_pro_4000_blackwell_sff          12.0  24     70   280
rtx_pro_4500_blackwell              12.0  32     200  480
rtx_pro_5000_blackwell              12.0  48,72  300  600
rtx_pro_5000_blackwell_laptop       12.0  24     175  430
rtx_pro_6000_blackwell_server       12.0  96     600  900
rtx_pro_6000_blackwell_workstation  12.0  96     600  900
`

// kind holds the properties of one type of device.
type kind struct {
	name       string
	capability int     // In tenths, as in compute.GPU.
	vramGiB    []int64 // The most common size first.
	powerWatt  float64 // At full load.
	speedMilli int     // When simulated, relative to an h100, which is 1,000.
}

// memory returns the memory of a simulated device of the kind.
func (k kind) memory() int64 {
	if len(k.vramGiB) == 0 {
		return 0
	}
	return k.vramGiB[0]
}

// kinds returns the known types in the order of their names.
var kinds = sync.OnceValue(func() []kind { //nolint:gochecknoglobals // Immutable, and read from the table once.
	var all []kind
	for line := range strings.Lines(typeTable) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			all = append(all, parseKind(line))
		}
	}
	slices.SortFunc(all, func(a, b kind) int { return strings.Compare(a.name, b.name) })
	return all
})

// parseKind reads one line of the table. It panics if the line is malformed,
// which a test excludes.
func parseKind(line string) kind {
	var k kind
	var major, minor int
	var sizes string
	if _, err := fmt.Sscanf(line, "%s %d.%d %s %g %d",
		&k.name, &major, &minor, &sizes, &k.powerWatt, &k.speedMilli); err != nil {
		panic(fmt.Sprintf("the table of GPU types has %q: %v", line, err))
	}
	k.capability = 10*major + minor
	for text := range strings.SplitSeq(sizes, ",") {
		var gib int64
		if _, err := fmt.Sscan(text, &gib); err != nil {
			panic(fmt.Sprintf("the table of GPU types has %q: %v", line, err))
		}
		k.vramGiB = append(k.vramGiB, gib)
	}
	return k
}

// KnownTypes returns the names of the types of the table, sorted. All of them
// can be simulated.
func KnownTypes() []string {
	all := kinds()
	types := make([]string, len(all))
	for i, k := range all {
		types[i] = k.name
	}
	return types
}

// kindOf returns the properties of the type.
func kindOf(name string) (kind, bool) {
	all := kinds()
	i, found := slices.BinarySearchFunc(all, name, func(k kind, name string) int {
		return strings.Compare(k.name, name)
	})
	if !found {
		return kind{}, false
	}
	return all[i], true
}

// maxSuggested is how many types an error lists.
const maxSuggested = 8

// suggestTypes returns types to name in an error about an unknown one: those
// that contain it or that it contains, separators aside, else the common ones.
func suggestTypes(name string) []string {
	joined := strings.NewReplacer("_", "", "-", "", " ", "")
	name = joined.Replace(name)
	var alike []string
	for _, k := range kinds() {
		known := joined.Replace(k.name)
		if name != "" && (strings.Contains(known, name) || strings.Contains(name, known)) {
			alike = append(alike, k.name)
		}
	}
	if len(alike) == 0 {
		alike = []string{"t4", "l4", "rtx_4090", "a100", "l40s", "h100", "h200", "b200"}
	}
	return alike[:min(len(alike), maxSuggested)]
}
