package rpc

import "io"

// Raw opens a stream for a test's own bytes.
func (c *Client) Raw() (io.ReadWriteCloser, error) { return c.session.OpenStream() }
