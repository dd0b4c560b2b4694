package check

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Code is the Python program that writes the marks that ReadMarks reads. It
// writes to a file for its attempt below the executor's mount "marks". It
// durably appends its identity and its GPUs, then a heartbeat ten times a
// second, and finally its end. Times are CLOCK_BOOTTIME in nanoseconds. Its
// format arguments are its working time in seconds, a float, and its exit code.
const Code = `import os, time
now = lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME)
e = os.environ
fd = os.open(f"/mnt/marks/{e['BERTH_EXECUTION_ID']}.{e['BERTH_ATTEMPT']}",
             os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o666)
os.write(fd, f"start {e['BERTH_GPUS'] or '-'} {now()}\n".encode())
os.fsync(fd)
until = now() + int(%f * 1e9)
while now() < until:
    time.sleep(0.1)
    os.write(fd, f"beat {now()}\n".encode())
os.write(fd, f"end {now()}\n".encode())
raise SystemExit(%d)
`

// Mark is the record that the code of one attempt left.
type Mark struct {
	Execution string
	Attempt   uint64
	GPUs      []string
	Starts    int   // How often the code was started.
	From, To  int64 // From the first start to the last sign of life, in nanoseconds.
	Ended     bool  // It came to its end.
}

// ReadMarks returns the marks of a directory, by execution and attempt.
func ReadMarks(dir fs.FS) ([]Mark, error) {
	entries, err := fs.ReadDir(dir, ".")
	if err != nil {
		return nil, fmt.Errorf("read marks: %w", err)
	}
	var marks []Mark
	for _, entry := range entries {
		data, err := fs.ReadFile(dir, entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read marks: %w", err)
		}
		m, err := parseMark(entry.Name(), data)
		if err != nil {
			return nil, fmt.Errorf("read mark %s: %w", entry.Name(), err)
		}
		if m.Starts > 0 {
			marks = append(marks, m)
		}
	}
	slices.SortFunc(marks, func(a, b Mark) int {
		return cmp.Or(cmp.Compare(a.Execution, b.Execution), cmp.Compare(a.Attempt, b.Attempt))
	})
	return marks, nil
}

// parseMark reads the file of one attempt. An incomplete last line belongs to a
// process that was killed during the write.
func parseMark(name string, data []byte) (Mark, error) {
	execution, attempt, _ := strings.Cut(name, ".")
	m := Mark{Execution: execution}
	var err error
	if m.Attempt, err = strconv.ParseUint(attempt, 10, 64); err != nil {
		return m, err
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	lines := bufio.NewScanner(bytes.NewReader(whole))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 {
			return m, fmt.Errorf("line %q", lines.Text())
		}
		at, err := strconv.ParseInt(words[len(words)-1], 10, 64)
		if err != nil {
			return m, err
		}
		switch words[0] {
		case "start":
			m.Starts++
			if m.Starts == 1 {
				m.From = at
			}
			if gpus := words[1]; len(words) == 3 && gpus != "-" {
				m.GPUs = strings.Split(gpus, ",")
			}
		case "end":
			m.Ended = true
		}
		m.To = max(m.To, at)
	}
	return m, lines.Err()
}

// Marks returns the violations in marks: an attempt whose code started twice,
// an execution that ran twice at the same time or more often than it has
// attempts, and a GPU used by two at once. All GPUs are used whole. attempts
// returns the largest number of attempts of an execution; nil means 1.
func Marks(marks []Mark, attempts func(execution string) int) []Violation {
	var wrong []Violation
	byExecution, byGPU := map[string][]Mark{}, map[string][]Mark{}
	for _, m := range marks {
		if m.Starts > 1 {
			wrong = append(wrong, Violation{
				What: "double start", Object: fmt.Sprintf("execution %s attempt %d", m.Execution, m.Attempt),
				Detail: fmt.Sprintf("its code was started %d times", m.Starts),
			})
		}
		byExecution[m.Execution] = append(byExecution[m.Execution], m)
		for _, gpu := range m.GPUs {
			byGPU[gpu] = append(byGPU[gpu], m)
		}
	}
	for _, name := range sortedKeys(byExecution) {
		all, most := byExecution[name], 1
		if attempts != nil {
			most = attempts(name)
		}
		if len(all) > most {
			wrong = append(wrong, Violation{
				What: "too many attempts", Object: "execution " + name,
				Detail: fmt.Sprintf("%d attempts executed its code, it may have had %d", len(all), most),
			})
		}
		wrong = append(wrong, overlaps("execution "+name, all)...)
	}
	for _, gpu := range sortedKeys(byGPU) {
		wrong = append(wrong, overlaps("GPU "+gpu, byGPU[gpu])...)
	}
	return wrong
}

// overlaps returns a violation for two attempts that ran at the same time.
func overlaps(object string, all []Mark) []Violation {
	slices.SortFunc(all, func(a, b Mark) int { return cmp.Compare(a.From, b.From) })
	var wrong []Violation
	for i := 1; i < len(all); i++ {
		before, m := all[i-1], all[i]
		if m.From < before.To {
			wrong = append(wrong, Violation{
				What: "overlap", Object: object,
				Detail: fmt.Sprintf("execution %s attempt %d lived until %v after execution %s attempt %d began",
					before.Execution, before.Attempt, time.Duration(before.To-m.From), m.Execution, m.Attempt),
			})
		}
	}
	return wrong
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
