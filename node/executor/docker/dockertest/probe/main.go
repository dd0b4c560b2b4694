// Command probe is the program of the images that tests make: a static program without
// anything beside it. Each argument list is one thing that a container may try.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Println("probe")
		return
	}
	if err := try(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func try(what string, args []string) error {
	switch what {
	case "print":
		fmt.Println(strings.Join(args, " "))
	case "err":
		fmt.Fprintln(os.Stderr, strings.Join(args, " "))
	case "exit":
		os.Exit(number(args, 0))
	case "env":
		fmt.Println(strings.Join(os.Environ(), "\n"))
	case "id":
		fmt.Println(os.Getuid(), os.Getgid())
	case "sleep":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("sleeping")
		time.Sleep(time.Duration(number(args, 0)) * time.Second)
	case "term":
		return untilTerminated(number(args, 0))
	case "busy": // The same, with a fifth of a core.
		go beBusy()
		return untilTerminated(number(args, 0))
	case "write":
		return fill(args[0], number(args, 1))
	case "read":
		data, err := os.ReadFile(args[0])
		fmt.Print(string(data))
		return err
	case "alloc":
		hold(number(args, 0))
	case "flood":
		_, err := io.Copy(os.Stdout, io.LimitReader(endless{}, int64(number(args, 0))<<20))
		return err
	case "forks":
		fmt.Println(forks(number(args, 0)))
	case "each":
		each(args)
	case "serve":
		return http.ListenAndServe(":"+args[0], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintln(w, "served", r.URL.Path)
		}))
	case "model":
		return serveModel(args[0], args[1])
	case "-m":
		return serveSGLang(args)
	case "ask":
		return ask(args[0], number(args, 1))
	default:
		return attack(what, args)
	}
	return nil
}

// serveModel answers every chat with the content of the file of a model, the names of the
// network's links and why it cannot write to the file and beside it, as an engine of models.
func serveModel(port, file string) error {
	return http.ListenAndServe(":"+port, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := os.ReadFile(file)
		links, e := net.Interfaces()
		if err = errors.Join(err, e); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		text := string(data)
		for _, l := range links {
			text += " " + l.Name
		}
		for _, name := range []string{file, filepath.Join(filepath.Dir(file), "made")} {
			f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
			switch {
			case errors.Is(err, syscall.EROFS):
				text += " read-only"
			case err == nil:
				f.Close()
			}
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"choices":[{"message":{"role":"assistant","content":%q}}],"path":%q}`, text, r.URL.Path)
	}))
}

// ask prints the answer to a request, and ends with a code. The server may be starting.
func ask(url string, code int) error {
	var err error
	for range 100 {
		var answer *http.Response
		if answer, err = http.Get(url); err == nil {
			_, err = io.Copy(os.Stdout, answer.Body)
			answer.Body.Close()
			if err == nil {
				os.Exit(code)
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// each tries several things, which a semicolon separates, each in a process of its own,
// and says of each whether it succeeded.
func each(args []string) {
	for len(args) > 0 {
		end := slices.Index(args, ";")
		if end < 0 {
			end = len(args)
		}
		one := args[:end]
		args = args[min(end+1, len(args)):]
		result := "succeeded"
		out, err := exec.Command("/proc/self/exe", one...).CombinedOutput()
		if err != nil {
			result, out = fmt.Sprintf("failed: %v: %.200q", err, out), nil
		}
		fmt.Printf("%s%s: %s\n", out, strings.Join(one, " "), result)
	}
}

func number(args []string, i int) int {
	if i >= len(args) {
		return 0
	}
	n, _ := strconv.Atoi(args[i])
	return n
}

// untilTerminated ends with a code once it gets SIGTERM.
func untilTerminated(code int) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	fmt.Println("ready")
	<-signals
	fmt.Println("terminated")
	os.Exit(code)
	return nil
}

// beBusy computes in a fifth of the time.
func beBusy() {
	for {
		for begin := time.Now(); time.Since(begin) < 20*time.Millisecond; {
		}
		time.Sleep(80 * time.Millisecond)
	}
}

// fill writes so many MiB to a file.
func fill(name string, mib int) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	if mib == 0 {
		_, err = file.WriteString("written\n")
	} else {
		_, err = io.Copy(file, io.LimitReader(endless{}, int64(mib)<<20))
	}
	if e := file.Close(); err == nil {
		err = e
	}
	return err
}

// hold takes so many MiB of memory.
func hold(mib int) {
	var held [][]byte
	for range mib {
		page := make([]byte, 1<<20)
		for i := range page {
			page[i] = 1
		}
		held = append(held, page)
	}
	fmt.Println(len(held))
}

// forks starts processes that wait, and returns how many could be started.
func forks(most int) int {
	started := 0
	for ; started < most; started++ {
		if _, err := os.StartProcess("/proc/self/exe", []string{"probe", "sleep", "60"}, &os.ProcAttr{}); err != nil {
			break
		}
	}
	return started
}

// endless is lines without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = "0123456789abcde\n"[i%16]
	}
	return len(p) / 16 * 16, nil
}
