package inspect

import (
	"context"
	"iter"
	"strings"
	"time"

	"berth/api/client"
)

// For how long a stream brings nothing: once it has brought what was written before,
// and if nothing was.
const (
	quiet = 500 * time.Millisecond
	empty = 5 * time.Second
)

// chooser shows a part of a stream: the last of the lines that were written
// from an instant on, and all later ones.
type chooser struct {
	tail     int       // Lines; negative for all.
	from     time.Time // Zero for the beginning.
	now      time.Time // When the command began: what is written later is shown.
	toTheEnd bool      // Until the execution ends, else until the stream is quiet.
	show     func(client.Event) error

	held []client.Event // The last lines so far.
	live bool           // Nothing is held back any more.
}

// item is an event of a stream, or its error.
type item struct {
	event client.Event
	err   error
}

// read shows the part of the stream.
func (c *chooser) read(ctx context.Context, open func(context.Context) iter.Seq2[client.Event, error]) error {
	items, stop := receive(ctx, open)
	defer stop()
	c.live = c.tail < 0
	for limit := empty; ; limit = quiet {
		var silence <-chan time.Time
		if !c.live || !c.toTheEnd {
			silence = time.After(limit)
		}
		select {
		case i, ok := <-items:
			if !ok || i.err != nil {
				return errorsFirst(c.flush(), i.err)
			}
			if err := c.take(i.event); err != nil {
				return err
			}
		case <-silence:
			if err := c.flush(); err != nil || !c.toTheEnd {
				return err
			}
		}
	}
}

// receive returns the events of a stream. stop ends it and waits for that.
func receive(
	ctx context.Context, open func(context.Context) iter.Seq2[client.Event, error],
) (items chan item, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	stream := open(ctx)
	items = make(chan item)
	go func() {
		defer close(items)
		for event, err := range stream {
			select {
			case items <- item{event, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return items, func() {
		cancel()
		for range items { // Wait for the goroutine to end.
		}
	}
}

// errorsFirst returns the first error that is not nil.
func errorsFirst(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// take shows an event, or holds it while it may not be among the last lines.
func (c *chooser) take(event client.Event) error {
	if event.Finished == nil && !event.At.IsZero() {
		if event.At.Before(c.from) {
			return nil
		}
		if event.At.After(c.now) {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
	if event.Finished != nil {
		if err := c.flush(); err != nil {
			return err
		}
	}
	if c.live {
		return c.show(event)
	}
	c.held = append(c.held, event)
	lines := 0
	for i := len(c.held) - 1; i >= 0; i-- {
		lines += strings.Count(c.held[i].Content, "\n")
		if lines >= c.tail {
			c.held = c.held[i:]
			c.held[0].Content = lastOf(c.held[0].Content, c.tail-(lines-strings.Count(c.held[0].Content, "\n")))
			break
		}
	}
	return nil
}

// flush shows what is held. From then on nothing is held.
func (c *chooser) flush() error {
	c.live = true
	for _, event := range c.held {
		if err := c.show(event); err != nil {
			return err
		}
	}
	c.held = nil
	return nil
}

// lastOf returns the last lines of a text, all for a negative number. The last line
// may lack its line feed.
func lastOf(text string, lines int) string {
	if lines < 0 {
		return text
	}
	if lines == 0 {
		return ""
	}
	at := len(strings.TrimSuffix(text, "\n"))
	for range lines {
		at = strings.LastIndexByte(text[:max(at, 0)], '\n')
		if at < 0 {
			return text
		}
	}
	return text[at+1:]
}
