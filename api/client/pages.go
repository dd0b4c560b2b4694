package client

import (
	"context"
	"net/http"
	"net/url"

	berth "berth/sdk/go"
)

// pages returns all rows of a list that is answered in pages.
func pages[T any](ctx context.Context, c *Client, path string) ([]T, error) {
	return pagesOf(ctx, c, path, func(rows *[]T) []T { return *rows })
}

// pagesOf returns all rows of a list that is answered in pages of type P.
func pagesOf[P, T any](ctx context.Context, c *Client, path string, rows func(*P) []T) ([]T, error) {
	all := []T{}
	query := url.Values{}
	for {
		var page P
		var header http.Header
		err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: path, Query: query, Out: &page, Header: &header})
		if err != nil {
			return nil, err
		}
		all = append(all, rows(&page)...)
		next := header.Get("X-Next-Cursor")
		if next == "" {
			return all, nil
		}
		query.Set("cursor", next)
	}
}
