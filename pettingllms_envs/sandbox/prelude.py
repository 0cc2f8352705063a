"""The names that LeetCode gives to every Python program, as the data sets of its problems expect them.

Written for this project after LeetCode's own list of what it imports; `ListNode` and `TreeNode` are the classes that
its starter codes show in a comment.
"""

from __future__ import annotations


LEETCODE_PRELUDE = """\
import bisect, collections, copy, datetime, functools, heapq, itertools, math, operator, random, re, string, sys
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import *
from operator import *
from random import *
from string import *
from typing import *
from builtins import pow


class ListNode:
    def __init__(self, val=0, next=None):
        self.val = val
        self.next = next


class TreeNode:
    def __init__(self, val=0, left=None, right=None):
        self.val = val
        self.left = left
        self.right = right
"""
