package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// guide is the document whose commands are executed.
const guide = "../../docs/getting-started.md"

// mustGuide returns the command lines of the guide: those of its blocks, or with inline
// also those in its sentences.
func mustGuide(t *testing.T, inline bool) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	block := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "```":
			block = !block
		case block:
			lines = append(lines, line)
		case inline:
			for _, found := range regexp.MustCompile("`(berth [a-z][^`]*)`").FindAllStringSubmatch(line, -1) {
				lines = append(lines, found[1])
			}
		}
	}
	if len(lines) < 10 {
		t.Fatalf("only %d commands are found: %q", len(lines), lines)
	}
	return lines
}

// TestGuideHasCommands holds that every command of the guide exists, with the flags
// that it uses. The long form executes them.
func TestGuideHasCommands(t *testing.T) {
	root := newRoot()
	for _, line := range mustGuide(t, true) {
		checkExample(t, root, "  "+line)
	}
}

// TestInferenceGuideHasCommands holds the same of the page about models.
func TestInferenceGuideHasCommands(t *testing.T) {
	text, err := os.ReadFile("../../docs/inference.md")
	if err != nil {
		t.Fatal(err)
	}
	root, checked := newRoot(), 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "berth ") {
			checkExample(t, root, "  "+strings.TrimSpace(line))
			checked++
		}
	}
	if checked < 3 {
		t.Errorf("only %d commands are found", checked)
	}
}
