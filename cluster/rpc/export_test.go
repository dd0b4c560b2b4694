package rpc

import "io"

// Raw opens a stream for raw bytes.
func (c *Client) Raw() (io.ReadWriteCloser, error) { return c.session.OpenStream() }
